// Package results reads what sweeps have measured: the medians, ratios and claims of a sweep, and the differences between two sweeps.
// Package page draws these results.
package results

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/deploy/failure"
)

// ReadParts reads the results of a sweep for its pages, one part per page. The results contain the times at which jobs were created,
// placed and finished.
func ReadParts(st *bench.Store) ([]page.Input, error) {
	all, err := st.AllAttempts()
	if err != nil {
		return nil, err
	}
	in, counted := summarise(st.Sweep, all)
	for i, a := range counted {
		k := slices.IndexFunc(st.Sweep.Trials, func(t bench.Trial) bool { return t.Number == a.Trial })
		jobs, events, err := st.Played(st.Sweep.Trials[k], a)
		if err != nil {
			return nil, err
		}
		times := trial.ListTimes(jobs, a.Result.Began, events)
		in.Trials[i].Times = &times
	}
	return splitHollow(st.Sweep, in)
}

// summarise returns the results of a sweep with these attempts, without the trials of the warm-up. It also returns the attempt of each
// trial of the result.
func summarise(s bench.Sweep, all map[int][]bench.Attempt) (in page.Input, counted []bench.Attempt) {
	in = page.Input{
		Sweep: s.ID, Started: s.Created, Revision: s.Revision, Order: s.Benchmark.Order, Seed: s.Benchmark.Seed, Cells: s.Benchmark.Cells,
		Quiet: s.Benchmark.Quiet, Systems: s.CompareLevels(all),
	}
	limits := map[string][]page.Limit{} // by the levels of their configuration
	var missing []int                   // numbers of the trials that have no result
	measured := 0                       // number of trials that are not part of the warm-up
	for _, t := range s.Trials {
		if t.Block == 0 {
			continue
		}
		if measured++; !slices.ContainsFunc(all[t.Number], bench.Attempt.Counts) {
			missing = append(missing, t.Number)
		}
		for _, a := range all[t.Number] {
			if a.State == bench.Failed {
				continue
			}
			counted, in.Trials = append(counted, a), append(in.Trials, newTrial(t, a))
			levels := s.Configurations[t.Configuration].Levels
			if key := bench.FormatCell(levels); limits[key] == nil {
				for _, l := range a.Limits {
					limits[key] = append(limits[key], page.Limit{Limit: l, Cell: levels})
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(limits)) {
		in.Limits = append(in.Limits, limits[key]...)
	}
	orderByTime(in.Trials, counted)
	in.Notes = listNotes(s.Benchmark, counted, missing, measured)
	return in, counted
}

// listNotes returns what readers of the results must know. counted are the attempts with a result, missing the numbers of the trials
// without a result, and measured the number of all trials without the warm-up.
func listNotes(b bench.Benchmark, counted []bench.Attempt, missing []int, measured int) (notes []string) {
	if b.Order == bench.Cheap {
		notes = append(notes, "Order \"cheap\": differences between configurations are confounded with time.")
	}
	if b.Reset != bench.Fresh {
		notes = append(notes, "Reset \"clean\": trials on the same machines are not independent.")
	}
	if len(missing) > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d trials have no result: %s.", len(missing), measured, formatNumbers(missing)))
	}
	notes = append(notes, bench.DescribePlaces(counted)...)
	if slices.ContainsFunc(counted, func(a bench.Attempt) bool { return slices.Contains(a.Reasons, bench.EmulatedDoubt) }) {
		notes = append(notes, bench.EmulatedDoubt)
	}
	return notes
}

// newTrial returns the trial t with the result and the noise of its attempt a, but without the times of its jobs.
func newTrial(t bench.Trial, a bench.Attempt) page.Trial {
	out := page.Trial{
		Sample:  stats.Sample{Cell: t.Cell, Block: t.Block, Metrics: a.Result.Metrics, Incomplete: !a.Result.Complete},
		Verdict: a.State, Reasons: a.Reasons, Requests: a.Requests, Nodes: a.Result.Nodes,
	}
	if a.Noise != nil {
		out.Noise = *a.Noise
	}
	return out
}

// orderByTime sets the Order of each trial by the time at which its attempt began: repeated trials ran later than planned.
func orderByTime(trials []page.Trial, attempts []bench.Attempt) {
	for i := range trials {
		trials[i].Order = 1
		for _, other := range attempts {
			if other.Began.Before(attempts[i].Began) {
				trials[i].Order++
			}
		}
	}
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

// counting returns the samples of the trials whose results count (valid or suspect) and for which selects returns true.
func counting(trials []page.Trial, selects func(page.Trial) bool) []stats.Sample {
	var out []stats.Sample
	for _, t := range trials {
		if t.Verdict != bench.Invalid && selects(t) {
			out = append(out, t.Sample)
		}
	}
	return out
}

// samplesOf returns the samples of a cell whose results count (valid or suspect).
func samplesOf(in page.Input, cell map[string]string) []stats.Sample {
	return counting(in.Trials, func(t page.Trial) bool { return maps.Equal(t.Cell, cell) })
}

// evaluateClaims evaluates the claims of a benchmark with the trials whose results count (valid or suspect).
func evaluateClaims(b bench.Benchmark, trials []page.Trial) ([]stats.ClaimResult, error) {
	samples := counting(trials, func(page.Trial) bool { return true })
	var out []stats.ClaimResult
	for _, name := range slices.Sorted(maps.Keys(b.Claims)) {
		claim, err := stats.ParseClaim(b.Claims[name])
		if err != nil {
			return nil, fmt.Errorf("claims.%s: %w", name, err)
		}
		out = append(out, claim.Evaluate(samples))
	}
	return out, nil
}

// Check returns an error if a trial of the sweep has no result, or if a claim does not hold.
func (r Report) Check() error {
	var problems []string
	for _, t := range r.Sweep.Trials {
		if !slices.ContainsFunc(r.Attempts, func(a bench.Attempt) bool { return a.Trial == t.Number && a.Counts() }) {
			problems = append(problems, fmt.Sprintf("trial %d (%s)", t.Number, t))
		}
	}
	if n := len(problems); n > 0 {
		err := fmt.Errorf("%d of %d trials have no result: %s", n, len(r.Sweep.Trials), strings.Join(problems, ", "))
		return failure.WithHint(failure.WithKind(failure.Check, err), "nixbench bench show --trials shows why")
	}
	for _, c := range r.Claims {
		if c.Verdict == stats.Refuted {
			problems = append(problems, c.Claim.Text)
		}
	}
	if len(problems) > 0 {
		return failure.WithKind(failure.Check, fmt.Errorf("the results refute: %s", strings.Join(problems, "; ")))
	}
	return nil
}

// DescribeAttempt returns a line about an attempt of a trial.
func DescribeAttempt(t bench.Trial, at bench.Attempt, trials int) string {
	text := fmt.Sprintf("trial %d of %d: %s: %s", t.Number, trials, t, at.State)
	if at.State != bench.Failed {
		text += fmt.Sprintf(", %d of %d jobs", at.Result.Finished, at.Result.Jobs)
		for _, m := range []string{"throughput", "schedule_p50", "makespan"} {
			if v, ok := at.Result.Metrics[m]; ok {
				text += fmt.Sprintf(", %s %.4g", m, v)
			}
		}
	}
	if len(at.Limited) > 0 {
		text += ", limited by " + strings.Join(at.Limited, " and ")
	}
	if len(at.Reasons) > 0 {
		text += ": " + strings.Join(at.Reasons, "; ")
	}
	return text
}

// DescribeProgress returns a line with the number of trials in each state, and the share of the time in which workloads ran.
func DescribeProgress(p bench.Progress, took time.Duration) string {
	text := fmt.Sprintf("%d of %d trials in %v: %d valid, %d suspect, %d invalid, %d failed attempts", p.Done, p.Trials, took.Round(time.Second),
		p.States[bench.Valid], p.States[bench.Suspect], p.States[bench.Invalid], p.States[bench.Failed])
	if p.Elapsed > 0 {
		text += fmt.Sprintf("; workloads ran in %.0f %% of the time", 100*p.Played/p.Elapsed)
	}
	return text
}
