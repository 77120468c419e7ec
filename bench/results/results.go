// Package results reads what sweeps have measured: the means, ratios and claims of a sweep, and the differences between sweeps.
// Package page draws these results.
package results

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/page"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/failure"
)

// ReadParts reads the results of a sweep for its pages, one part per page.
func ReadParts(st *bench.Store) ([]page.Input, error) {
	_, _, parts, err := read(st)
	return parts, err
}

// read reads the results of a sweep, its attempts, and its parts.
func read(st *bench.Store) (in page.Input, all map[int][]bench.Attempt, parts []page.Input, err error) {
	if all, err = st.AllAttempts(); err != nil {
		return in, nil, nil, err
	}
	in = summarise(st.Sweep, all)
	in.Engines = listEngines(st.Sweep)
	baselines, err := readBaselines(st)
	return in, all, splitHollow(in, all, baselines), err
}

// listEngines returns the packages of schedulers in the systems of a sweep, with their versions.
func listEngines(s bench.Sweep) string {
	var found []string
	for _, k := range deploy.EngineKinds() {
		form := regexp.MustCompile(`-(` + k.Name + `[a-z-]*-[0-9][0-9.]*)$`)
		for _, path := range s.Closure() {
			if m := form.FindStringSubmatch(path); m != nil && !slices.Contains(found, m[1]) {
				found = append(found, m[1])
			}
		}
	}
	return strings.Join(found, ", ")
}

// summarise returns the results of a sweep with these attempts, without the trials of the warm-up.
func summarise(s bench.Sweep, all map[int][]bench.Attempt) page.Input {
	in := page.Input{Sweep: s, Cells: s.Benchmark.Cells, Systems: s.CompareLevels(all)}
	for _, t := range s.Trials {
		if t.Block == 0 {
			continue
		}
		for _, a := range all[t.Number] {
			of := page.Trial{Sample: stats.Sample{Cell: t.Cell, Block: t.Block, Metrics: a.Result.Metrics, Incomplete: !a.Result.Complete}, Attempt: a}
			if a.State == bench.Failed {
				in.Failed = append(in.Failed, of)
				continue
			}
			in.Trials = append(in.Trials, of)
		}
	}
	for i, t := range in.Trials { // repeated trials ran later than planned
		in.Trials[i].Order = 1 + len(stats.Keep(in.Trials, func(other page.Trial) bool { return other.Began.Before(t.Began) }))
	}
	return in
}

// describeLimited returns a note for each thing that limited a trial, such as places, with the cells of these trials.
func describeLimited(in page.Input) (notes []string) {
	cells := map[string][]string{}
	for _, t := range in.Trials {
		for _, name := range t.Limited {
			cells[name] = append(cells[name], bench.NameCell(in.Cells, t.Cell))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cells)) {
		list := slices.Compact(slices.Sorted(slices.Values(cells[name])))
		notes = append(notes, fmt.Sprintf("Limited by %s in at least one trial: %s.", name, strings.Join(list, "; ")))
	}
	return notes
}

// listNotes returns what readers of the results of those cells for which of returns true must know. all are the attempts of the sweep.
func listNotes(in page.Input, all map[int][]bench.Attempt, of func(map[string]string) bool) (notes []string) {
	s, b := in.Sweep, in.Sweep.Benchmark
	counted := stats.Map(in.Trials, func(t page.Trial) bench.Attempt { return t.Attempt })
	missing, measured := 0, 0 // trials without a result, and all trials, without those of the warm-up
	for _, t := range s.Trials {
		if t.Block > 0 && of(t.Cell) {
			measured++
			if !slices.ContainsFunc(all[t.Number], bench.Attempt.Counts) {
				missing++
			}
		}
	}
	for _, doubt := range []string{bench.EmulatedDoubt, bench.SharedKernelDoubt} {
		if slices.ContainsFunc(counted, func(a bench.Attempt) bool { return slices.Contains(a.Reasons, doubt) }) {
			notes = append(notes, strings.ToUpper(doubt[:1])+doubt[1:]+".")
		}
	}
	if b.Order == bench.Cheap {
		notes = append(notes, "Order \"cheap\": differences between configurations are confounded with time.")
	}
	if b.Reset != bench.Fresh {
		notes = append(notes, "Reset \"clean\": trials on the same machines are not independent.")
	}
	if missing > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d trials have no result; the answers are preliminary if the sweep is continued.", missing, measured))
	}
	if level := s.Level(); level != stats.Level {
		notes = append(notes, fmt.Sprintf("The sweep may have up to %d blocks: the answers after %d blocks use a level of %.2g %%.", b.MaxBlocks, b.Repetitions, 100*level))
	}
	if slices.ContainsFunc(counted, func(a bench.Attempt) bool { return a.Result.Jobs > 0 && a.Result.Jobs < trial.MinJobsP99 }) {
		notes = append(notes, fmt.Sprintf("The 99th percentiles of workloads with fewer than %d jobs are absent.", trial.MinJobsP99))
	}
	notes = append(notes, bench.DescribePlaces(counted)...)
	return append(notes, bench.DescribeStamps(counted)...)
}

// counting returns the samples of the trials whose results count (valid or suspect).
func counting(trials []page.Trial) []stats.Sample {
	valid := stats.Keep(trials, func(t page.Trial) bool { return t.State != bench.Invalid })
	return stats.Map(valid, func(t page.Trial) stats.Sample { return t.Sample })
}

func samplesOf(in page.Input, cell map[string]string) []stats.Sample {
	return stats.Keep(counting(in.Trials), func(s stats.Sample) bool { return maps.Equal(s.Cell, cell) })
}

// evaluateClaims evaluates the claims of a sweep with the trials whose results count (valid or suspect).
func evaluateClaims(s bench.Sweep, trials []page.Trial, baselines map[string][]stats.Sample) (out []stats.ClaimResult) {
	samples := counting(trials)
	for _, name := range slices.Sorted(maps.Keys(s.Benchmark.Claims)) {
		claim := s.Benchmark.Claims[name]
		same := stats.Map(claim.Baseline, func(id string) []stats.Sample { return baselines[id] })
		of := samples
		if claim.Factor != bench.RepeatFactor {
			of = withoutRepeat(samples)
		}
		out = append(out, claim.Evaluate(name, of, same, s.Level()))
	}
	return out
}

// withoutRepeat returns samples whose cells do not have the factor repeat, so that equal cells are one.
func withoutRepeat(samples []stats.Sample) []stats.Sample {
	return stats.Map(samples, func(s stats.Sample) stats.Sample {
		s.Cell = stats.Without(s.Cell, bench.RepeatFactor)
		return s
	})
}

// readBaselines returns the samples of the sweeps that the claims of a sweep name as baselines, by id. These sweeps are in the same folder.
// A sweep that is not there has no samples.
func readBaselines(st *bench.Store) (map[string][]stats.Sample, error) {
	out := map[string][]stats.Sample{}
	for _, c := range st.Sweep.Benchmark.Claims {
		for _, id := range c.Baseline {
			folder := filepath.Join(filepath.Dir(st.Folder), filepath.Base(id))
			if _, err := os.Stat(folder); err != nil {
				continue
			}
			other, err := bench.Open(folder)
			if err != nil {
				return nil, err
			}
			all, err := other.AllAttempts()
			if err != nil {
				return nil, err
			}
			in := summarise(other.Sweep, all)
			out[id] = withoutRepeat(counting(in.Trials))
		}
	}
	return out, nil
}

// Check returns an error if a trial of the sweep has no result, or if a claim does not hold.
func (r Report) Check() error {
	var problems []string
	for _, t := range r.Sweep.Trials {
		if !slices.ContainsFunc(r.Attempts, func(a bench.Attempt) bool { return a.Trial == t.Number && a.Counts() }) {
			problems = append(problems, fmt.Sprintf("trial %d (%s)", t.Number, bench.NameCell(r.Sweep.Benchmark.Cells, t.Cell)))
		}
	}
	if n := len(problems); n > 0 {
		err := fmt.Errorf("%d of %d trials have no result: %s", n, len(r.Sweep.Trials), strings.Join(problems, ", "))
		return failure.WithHint(failure.WithKind(failure.Check, err), "nixbench bench show shows why")
	}
	return r.CheckClaims()
}

// CheckClaims returns an error if a claim does not hold.
func (r Report) CheckClaims() error {
	refuted := stats.Keep(r.Claims, func(c stats.ClaimResult) bool { return c.Verdict == stats.Refuted })
	if len(refuted) == 0 {
		return nil
	}
	names := stats.Map(refuted, func(c stats.ClaimResult) string { return c.Name + ": " + c.Text })
	return failure.WithKind(failure.Check, fmt.Errorf("the results refute: %s", strings.Join(names, "; ")))
}

// DescribeAttempt returns a line about an attempt of a trial.
func DescribeAttempt(s bench.Sweep, t bench.Trial, at bench.Attempt) string {
	text := fmt.Sprintf("trial %d of %d: %s: %s", t.Number, len(s.Trials), bench.NameCell(s.Benchmark.Cells, t.Cell), at.State)
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

func isHollow(s bench.Sweep, levels map[string]string) bool {
	return slices.ContainsFunc(s.Trials, func(t bench.Trial) bool {
		for f, level := range levels {
			if t.Cell[f] != level {
				return false
			}
		}
		return s.Configurations[t.Configuration].Hollow > 0
	})
}

// splitHollow returns the results of the cells whose nodes are machines, and then the results of the cells with hollow nodes, so that no
// table, no drawing and no claim compares both kinds of cells. If all cells are of one kind, it returns one part. Each part has its claims
// and notes. all are the attempts of the sweep. baselines has the samples of the sweeps that claims name as baselines, by id.
func splitHollow(in page.Input, all map[int][]bench.Attempt, baselines map[string][]stats.Sample) (parts []page.Input) {
	s := in.Sweep
	for i, name := range []string{"machines", "hollow nodes"} {
		of := func(cell map[string]string) bool { return isHollow(s, cell) == (i == 1) }
		ofTrial := func(t page.Trial) bool { return of(t.Cell) }
		p := in
		p.Name, p.Cells, p.Trials, p.Failed = name, stats.Keep(in.Cells, of), stats.Keep(in.Trials, ofTrial), stats.Keep(in.Failed, ofTrial)
		p.Systems = stats.Keep(in.Systems, func(d bench.LevelDifference) bool { return of(d.A) && of(d.B) })
		p.Notes = slices.Concat(s.DescribeTuning(all, of), describeLimited(p), listNotes(p, all, of))
		p.Claims = evaluateClaims(s, p.Trials, baselines)
		if len(p.Cells) > 0 || i == 1 && parts == nil {
			parts = append(parts, p)
		}
	}
	if len(parts) == 1 {
		parts[0].Name = ""
		return parts
	}
	parts[0].Notes = append(parts[0].Notes, "The nodes of these cells are machines. Cells with hollow nodes are shown separately: a comparison would be confounded.")
	parts[1].Notes = append(parts[1].Notes, "The nodes of these cells are hollow.")
	// A claim about cells of one part is only in this part.
	isAbout := func(c stats.ClaimResult) bool { return len(c.Parts) > 0 }
	parts[1].Claims = stats.Keep(parts[1].Claims, isAbout)
	parts[0].Claims = stats.Keep(parts[0].Claims, func(c stats.ClaimResult) bool {
		return isAbout(c) || !slices.ContainsFunc(parts[1].Claims, func(other stats.ClaimResult) bool { return other.Name == c.Name })
	})
	return parts
}
