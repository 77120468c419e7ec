package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// options contains the options of the command line.
type options struct {
	seed, seeds uint64
	workers     int
	out         string
}

// runSeeds runs the test of each choice, and writes the report. The error contains the number of seeds that failed.
func runSeeds(ctx context.Context, o options, choices []choice) error {
	if len(choices) == 0 {
		return errors.New("no seed is selected")
	}
	if o.out == "" {
		var err error
		if o.out, err = os.MkdirTemp("", "nixbench-faults-report-"); err != nil {
			return err
		}
	} else if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	k, err := assemble()
	defer k.remove()
	if err != nil {
		return err
	}
	began := time.Now()
	results := make([]*result, len(choices))
	var workers errgroup.Group
	workers.SetLimit(o.workers)
	for i, c := range choices {
		workers.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			r := k.runSeedWithRetry(ctx, c, o.out)
			if ctx.Err() != nil {
				return nil // the result of an interrupted seed is not valid
			}
			results[i] = &r
			fmt.Println(r.line())
			return nil
		})
	}
	_ = workers.Wait()
	rep := report{Workers: o.workers, Wall: time.Since(began).Seconds()}
	for _, r := range results {
		if r != nil {
			rep.Results = append(rep.Results, *r)
		}
	}
	if err := rep.write(o.out); err != nil {
		return err
	}
	fmt.Print("\n", rep.summary(), "\nreport: ", filepath.Join(o.out, "report.md"), "\n")
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if n := rep.count(failed); n > 0 {
		return fmt.Errorf("%d of %d seeds failed", n, len(rep.Results))
	}
	return nil
}

// runSeedWithRetry runs the test of one choice. If the test fails and this computer stood still during the test, it is run once more.
func (k *kit) runSeedWithRetry(ctx context.Context, c choice, out string) result {
	before := stallTime()
	r := k.seed(ctx, c, out)
	stood := stallTime() - before
	if r.Verdict != failed || stood < disturbing || ctx.Err() != nil {
		return r
	}
	fmt.Printf("%s\n    all processes on this machine waited for memory or disks for %.0f s during this seed: it is run once more\n", r.line(), stood.Seconds())
	r = k.seed(ctx, c, out)
	r.Disturbed = stood.Seconds()
	return r
}

// seed runs the test of one choice in a separate lab, and writes a log. If the test fails, the state folder and libvirt's
// logs are kept, too.
func (k *kit) seed(ctx context.Context, c choice, out string) result {
	var log strings.Builder
	s, err := newSandbox(ctx, k, fmt.Sprintf("/tmp/nixbench-lab/faults-%d-%d", os.Getpid(), c.seed), &log)
	var r result
	if err != nil {
		r = result{Seed: c.seed, Operation: c.operation.name, Phase: c.phase, Fault: c.fault.name, Victim: c.victim, Verdict: failed, Problems: []string{"the lab: " + err.Error()}}
	} else {
		r = s.try(ctx, c, nil)
	}
	r.Log = filepath.Join(fmt.Sprintf("seed-%d", c.seed), "log")
	dir := filepath.Dir(filepath.Join(out, r.Log))
	err = os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "log"), []byte(log.String()), 0o644)
	}
	if err == nil && r.Verdict == failed {
		err = s.save(dir)
	}
	if err != nil {
		r.Problems = append(r.Problems, "the log is not complete: "+err.Error())
	}
	if err := s.close(); err != nil {
		r.Verdict, r.Problems = failed, append(r.Problems, "the lab: "+err.Error())
	}
	return r
}
