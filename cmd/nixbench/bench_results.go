package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/export"
	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/bench/workload"
)

// evaluateClaims evaluates the claims of a sweep with the results that count.
func evaluateClaims(b bench.Benchmark, trials []page.Trial) ([]stats.ClaimResult, error) {
	var samples []stats.Sample
	for _, t := range trials {
		if t.Verdict != page.Invalid {
			samples = append(samples, t.Sample)
		}
	}
	var out []stats.ClaimResult
	for _, name := range sortedNames(b.Claims) {
		claim, err := stats.ParseClaim(b.Claims[name])
		if err != nil {
			return nil, fmt.Errorf("claims.%s: %w", name, err)
		}
		out = append(out, claim.Evaluate(samples))
	}
	return out, nil
}

// analyseSweep reads the results of a sweep. Trials before the blocks are left out.
func analyseSweep(st *bench.Store) (page.Input, error) {
	in, _, err := analyseAttempts(st)
	return in, err
}

// analyseWithTimes also reads when the jobs of all trials were created, placed and finished.
func analyseWithTimes(st *bench.Store) (page.Input, error) {
	in, attempts, err := analyseAttempts(st)
	if err != nil {
		return in, err
	}
	for i, a := range attempts {
		k := slices.IndexFunc(st.Sweep.Trials, func(t bench.Trial) bool { return t.Number == a.Trial })
		jobs, events, err := readJobs(st, st.Sweep.Trials[k], a)
		if err != nil {
			return in, err
		}
		times := trial.ListTimes(jobs, a.Result.Began, events)
		in.Trials[i].Times = &times
	}
	return in, nil
}

// analyseAttempts also returns the attempt of each trial of the result.
func analyseAttempts(st *bench.Store) (page.Input, []bench.Attempt, error) {
	s := st.Sweep
	in := page.Input{Sweep: s.ID, Started: s.Created, Revision: s.Revision, Order: s.Benchmark.Order, Seed: s.Benchmark.Seed, Cells: s.Benchmark.Cells, Quiet: toPageQuiet(s.Benchmark.Quiet)}
	if s.Benchmark.Order == bench.Cheap {
		in.Notes = append(in.Notes, "Order \"cheap\": differences between configurations are confounded with time.")
	}
	if s.Benchmark.Reset != bench.Fresh {
		in.Notes = append(in.Notes, "Reset \"clean\": trials on the same machines are not independent.")
	}
	emulated := false
	limits := map[string][]page.Limit{} // by the levels of their configuration
	var began []time.Time               // of each of in.Trials
	var counted []bench.Attempt         // of each of in.Trials
	var missing []int                   // the numbers of the trials without a result
	measured := 0                       // how many trials are no warm-up
	for _, t := range s.Trials {
		attempts, err := st.Attempts(t.Number)
		if err != nil {
			return in, counted, err
		}
		for _, a := range attempts {
			if t.Block == 0 || a.State == bench.Failed {
				continue
			}
			began, counted = append(began, a.Began), append(counted, a)
			x, err := toPageTrial(t, a)
			if err != nil {
				return in, counted, err
			}
			in.Trials = append(in.Trials, x)
			emulated = emulated || slices.Contains(a.Reasons, emulatedDoubt)
			levels := s.Configurations[t.Configuration].Levels
			if key := bench.FormatCell(levels); limits[key] == nil {
				limits[key] = toPageLimits(a.Limits, levels)
			}
		}
		if t.Block == 0 {
			continue
		}
		measured++
		if !slices.ContainsFunc(attempts, bench.Attempt.Counts) {
			missing = append(missing, t.Number)
		}
	}
	if len(missing) > 0 {
		in.Notes = append(in.Notes, fmt.Sprintf("%d of %d trials have no result: %s.", len(missing), measured, formatNumbers(missing)))
	}
	for i := range in.Trials { // repeated trials ran later
		in.Trials[i].Order = 1
		for _, other := range began {
			if other.Before(began[i]) {
				in.Trials[i].Order++
			}
		}
	}
	differences, err := compareLevels(st)
	if err != nil {
		return in, counted, err
	}
	for _, d := range differences {
		in.Closures = append(in.Closures, page.Closure{
			A: bench.FormatCell(d.A), B: bench.FormatCell(d.B), Summary: d.String(), Lines: d.Packages, Undeclared: d.Undeclared,
		})
	}
	for _, key := range sortedNames(limits) {
		in.Limits = append(in.Limits, limits[key]...)
	}
	in.Notes = append(in.Notes, bench.DescribePlaces(counted)...)
	if emulated {
		in.Notes = append(in.Notes, emulatedDoubt)
	}
	parts, err := splitHollow(s, in)
	if err != nil {
		return in, counted, err
	}
	for _, part := range parts { // a claim compares no hollow node with a machine
		claims, err := evaluateClaims(s.Benchmark, part.Trials)
		if err != nil {
			return in, counted, err
		}
		in.Claims = append(in.Claims, claims...)
	}
	return in, counted, nil
}

// formatNumbers writes ascending numbers as ranges, such as 1, 3–5.
func formatNumbers(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		part := strconv.Itoa(numbers[i])
		if last > i {
			part += "–" + strconv.Itoa(numbers[last])
		}
		parts = append(parts, part)
		i = last + 1
	}
	return strings.Join(parts, ", ")
}

// compareLevels compares the systems of the levels, and the limits of the first trial of each configuration.
func compareLevels(st *bench.Store) ([]bench.LevelDifference, error) {
	limits := map[int][]player.Limit{}
	for _, t := range st.Sweep.Trials {
		if limits[t.Configuration] != nil {
			continue
		}
		r, err := st.Result(t.Number)
		if err != nil {
			return nil, err
		}
		if r != nil {
			limits[t.Configuration] = r.Limits
		}
	}
	return bench.CompareLevels(st.Sweep, limits), nil
}

// toPageTrial returns an attempt of a trial with its noise, and without the times of its jobs.
func toPageTrial(t bench.Trial, a bench.Attempt) (page.Trial, error) {
	out := page.Trial{
		Sample:  stats.Sample{Cell: t.Cell, Block: t.Block, Metrics: a.Result.Metrics, Incomplete: !a.Result.Complete},
		Verdict: a.State, Reasons: a.Reasons, Complete: a.Result.Complete, Requests: a.Requests, Nodes: a.Result.Nodes,
	}
	var report noise.Report
	if len(a.Noise) > 0 {
		if err := json.Unmarshal(a.Noise, &report); err != nil {
			return out, fmt.Errorf("noise of trial %d: %w", t.Number, err)
		}
	}
	out.Noise = page.Noise{Steal: report.Steal, Foreign: report.ForeignCPU, PSI: report.PSICPU}
	if report.SpinRatio != nil {
		out.Noise.Canary = new(*report.SpinRatio - 1)
	}
	return out, nil
}

// readJobs reads the jobs of an attempt and their events. The jobs of a workload whose program decides them are those with events.
func readJobs(st *bench.Store, t bench.Trial, a bench.Attempt) ([]workload.Job, []player.Event, error) {
	jobs, err := st.Jobs(t.Workload())
	if err != nil {
		return nil, nil, err
	}
	events, err := st.Events(a)
	if err != nil {
		return nil, nil, err
	}
	if len(jobs) == 0 {
		jobs = bench.ObservedJobs(events, a.Result.Began)
	}
	return jobs, events, nil
}

func toPageQuiet(q bench.Quiet) page.Noise {
	return page.Noise{Steal: &q.Steal, Foreign: &q.ForeignCPU, PSI: &q.PSICPU, Canary: &q.Canary}
}

func toPageLimits(limits []player.Limit, levels map[string]string) []page.Limit {
	out := []page.Limit{}
	for _, l := range limits {
		out = append(out, page.Limit{Limit: l, Cell: levels})
	}
	return out
}

// toExport returns the results of a sweep for its export.
func toExport(st *bench.Store) (export.Sweep, error) {
	s := st.Sweep
	out := export.Sweep{Name: s.Name, ID: s.ID, Version: s.Nixbench, Started: s.Created, Ended: s.Created}
	for _, f := range sortedNames(s.Benchmark.Factors) {
		out.Factors = append(out.Factors, export.Factor{Name: f, Levels: s.Benchmark.Factors[f]})
	}
	for _, c := range s.Benchmark.Cells {
		out.Cells = append(out.Cells, export.Cell{Name: bench.FormatCell(c), Levels: c})
	}
	for _, t := range s.Trials {
		attempts, err := st.Attempts(t.Number)
		if err != nil {
			return out, err
		}
		for _, a := range attempts {
			if t.Block == 0 || a.State == bench.Failed {
				continue // it is no result
			}
			x := export.Trial{
				Cell: t.String(), Block: t.Block, Order: t.Number, Attempt: a.Number, Verdict: a.State, Started: a.Began, Ended: a.Ended,
				Reasons: a.Reasons, Metrics: a.Result.Metrics, Requests: requestCounts(a), Noise: noiseFigures(a), Events: fmt.Sprintf("trials/%d/%d/events.jsonl", t.Number, a.Number),
			}
			if x.Jobs, err = exportJobs(st, t, a); err != nil {
				return out, err
			}
			out.Trials = append(out.Trials, x)
			out.Ended = a.Ended
		}
	}
	return out, nil
}

// exportJobs returns the jobs of an attempt with the times of their events.
func exportJobs(st *bench.Store, t bench.Trial, a bench.Attempt) ([]export.Job, error) {
	jobs, events, err := readJobs(st, t, a)
	if err != nil {
		return nil, err
	}
	out := make([]export.Job, len(jobs))
	index := map[string]int{}
	for i, j := range jobs {
		out[i].Job, index[j.ID] = j, i
	}
	for _, e := range events {
		i, ok := index[e.Job]
		if !ok {
			continue
		}
		at := e.Time.Sub(a.Result.Began).Seconds()
		j := &out[i]
		switch e.Kind {
		case player.Submit:
			j.Submitted = &at
		case player.Start, player.Bound:
			if j.Started == nil || e.Kind == player.Start && *j.Started < at {
				j.Started = &at
			}
		case player.Finish:
			if j.Ended == nil || *j.Ended < at {
				j.Ended = &at
			}
		case player.Failed:
			j.Ended, j.Failed = &at, true
		}
	}
	return out, nil
}
