package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nixbench/nixbench/internal/bench/memgroup"
)

// evalRow is the measured evaluation of one hive.
type evalRow struct {
	nodes  int
	byName bool
	sample evalSample
	peak   int64 // bytes of all processes together
	kills  int64 // number of processes that the kernel has killed because of the memory limit
	err    error
}

func (r evalRow) kind() string {
	if r.byName {
		return "by name"
	}
	return "by role"
}

// maxCountCost is the budget of roles: the processor time of a larger count, relative to the smallest count with the
// same number of systems.
const maxCountCost = 1.25

// benchEval measures the evaluation of Kubernetes clusters of different sizes with a real nixpkgs: with all workers in
// one role, and with a named node for each. A memory limit holds for all processes together.
func benchEval(ctx context.Context, dir string, args []string) error {
	set := flag.NewFlagSet("eval", flag.ContinueOnError)
	nixpkgs := set.String("nixpkgs", os.Getenv("NIXBENCH_NIXPKGS"), "evaluate with the nixpkgs in this `FOLDER` (default: $NIXBENCH_NIXPKGS)")
	modules := set.String("modules", "modules", "`FOLDER` of nixbench's NixOS modules")
	nodes := set.String("nodes", "1,5,20,50", "numbers of nodes: `COUNTS` between commas")
	cross := set.Bool("cross", false, "let each named node read an option of all nodes, as for a hosts file")
	memory := set.Float64("memory", 8, "memory limit of all processes together, in `GB` of 2^30 bytes")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	counts, err := parseCounts(*nodes)
	if err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if *nixpkgs == "" {
		return errors.New("-nixpkgs: the folder of a complete nixpkgs is necessary")
	}
	job := evalJob{Dir: dir, Cross: *cross, Salt: time.Now().Format(time.RFC3339Nano)}
	for target, flag := range map[*string]string{&job.Nixpkgs: *nixpkgs, &job.Modules: *modules} {
		if *target, err = filepath.Abs(flag); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(*target, "default.nix")); err != nil && target == &job.Nixpkgs {
			return fmt.Errorf("-nixpkgs: %w", err)
		}
		if _, err := os.Stat(filepath.Join(*target, "guest.nix")); err != nil && target == &job.Modules {
			return fmt.Errorf("-modules: %w; run this in the folder of the repository", err)
		}
	}
	limit := int64(*memory * (1 << 30))
	fmt.Printf("a control plane and workers, nixpkgs %s, memory limit %s\n\n", *nixpkgs, formatMegabytes(limit))
	// The first evaluation writes derivations that all hives have in common into the store, so it is not measured.
	job.Nodes = 2
	if r := measureEval(ctx, job, limit); r.err != nil {
		return fmt.Errorf("first evaluation, of 2 nodes: %w", r.err)
	}
	var rows []evalRow
	for _, byName := range []bool{false, true} {
		for _, job.Nodes = range counts {
			job.ByName = byName
			job.Salt = time.Now().Format(time.RFC3339Nano)
			r := measureEval(ctx, job, limit)
			if r.err != nil {
				fmt.Fprintf(os.Stderr, "%d nodes %s: %v\n", r.nodes, r.kind(), r.err)
			} else {
				fmt.Fprintf(os.Stderr, "%d nodes %s: evaluated in %s\n", r.nodes, r.kind(), formatSeconds(r.sample.Survey+r.sample.Instantiate))
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			rows = append(rows, r)
		}
	}
	return printEval(rows, limit)
}

func parseCounts(text string) ([]int, error) {
	var counts []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > 500 {
			return nil, fmt.Errorf("-nodes: expected numbers between 1 and 500, not %q", word)
		}
		counts = append(counts, n)
	}
	return counts, nil
}

// measureEval evaluates the job's hive in a process of its own, in a cgroup with the memory limit.
func measureEval(ctx context.Context, job evalJob, limit int64) (r evalRow) {
	r = evalRow{nodes: job.Nodes, byName: job.ByName}
	job.Group, r.err = memgroup.Create(fmt.Sprintf("nixbench-bench-%d", os.Getpid()), limit)
	if r.err != nil {
		return r
	}
	sampling, stop := context.WithCancel(ctx)
	sampled := make(chan error, 1)
	go func() {
		var err error
		r.peak, err = job.Group.Peak(sampling)
		sampled <- err
	}()
	r.sample, r.err = evaluateInProcess(ctx, job)
	stop()
	err := <-sampled
	var killsErr error
	r.kills, killsErr = job.Group.Kills()
	r.err = errors.Join(r.err, err, killsErr, job.Group.Remove())
	return r
}

// printEval prints the figures as a table, and returns an error if one of them exceeds its budget.
func printEval(rows []evalRow, limit int64) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "hive\tnodes\tsystems\twall: survey\tsystems\tprocessor time\tpeak memory\t")
	broken := 0
	for _, r := range rows {
		problems := r.findProblems(rows, limit)
		broken += len(problems)
		note := ""
		if len(problems) > 0 {
			note = "BROKEN: " + strings.Join(problems, ", ")
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.kind(), r.nodes, r.sample.Summary, formatSeconds(r.sample.Survey),
			formatSeconds(r.sample.Instantiate), formatSeconds(r.sample.CPU), formatMegabytes(r.peak), note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if broken > 0 {
		return fmt.Errorf("%d over budget", broken)
	}
	return nil
}

// findProblems returns the exceeded budgets of a row. The kernel enforces the memory limit by killing processes, so these
// count, too.
func (r evalRow) findProblems(rows []evalRow, limit int64) (problems []string) {
	if r.err != nil {
		problems = append(problems, "not evaluated")
	}
	if r.kills > 0 || r.peak >= limit {
		problems = append(problems, fmt.Sprintf("%d processes killed at %s", r.kills, formatMegabytes(limit)))
	}
	if base := smallestLike(rows, r); r.err == nil && base != nil {
		if ratio := r.sample.CPU.Seconds() / base.sample.CPU.Seconds(); ratio > maxCountCost {
			problems = append(problems, fmt.Sprintf("%.2f times the processor time of %d nodes, more than %.2f", ratio, base.nodes, maxCountCost))
		}
	}
	return problems
}

// smallestLike returns the row with the fewest nodes that evaluated as many systems as r, or nil.
func smallestLike(rows []evalRow, r evalRow) *evalRow {
	var smallest *evalRow
	for i, other := range rows {
		if other.err == nil && other.byName == r.byName && other.sample.Units == r.sample.Units && (smallest == nil || other.nodes < smallest.nodes) {
			smallest = &rows[i]
		}
	}
	return smallest
}
