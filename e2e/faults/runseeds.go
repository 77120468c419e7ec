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
			r := k.seed(ctx, c, o.out)
			if ctx.Err() != nil {
				return nil // the result of an interrupted seed is not valid
			}
			results[i] = &r
			fmt.Println(r.line())
			return nil
		})
	}
	_ = workers.Wait()
	rep := report{workers: o.workers, wall: time.Since(began)}
	for _, r := range results {
		if r != nil {
			rep.results = append(rep.results, *r)
		}
	}
	if err := os.WriteFile(filepath.Join(o.out, "report.md"), []byte(rep.markdown()), 0o644); err != nil {
		return err
	}
	fmt.Print("\n", rep.summary(), "\nreport: ", filepath.Join(o.out, "report.md"), "\n")
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if n := rep.count(failed); n > 0 {
		return fmt.Errorf("%d of %d seeds failed", n, len(rep.results))
	}
	return nil
}

// seed runs the test of one choice in a separate lab, and writes a log. If the test fails, the state folder and libvirt's
// logs are kept, too.
func (k *kit) seed(ctx context.Context, c choice, out string) result {
	var log strings.Builder
	s, err := newSandbox(ctx, k, fmt.Sprintf("/tmp/nixbench-lab/faults-%d-%d", os.Getpid(), c.seed), &log)
	r := result{choice: c, verdict: failed}
	if err != nil {
		r.problems = []string{"the lab: " + err.Error()}
	} else {
		r = s.try(ctx, c, nil)
	}
	dir := filepath.Join(out, fmt.Sprintf("seed-%d", c.seed))
	err = os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "log"), []byte(log.String()), 0o644)
	}
	if err == nil && r.verdict == failed {
		err = s.save(dir)
	}
	if err != nil {
		r.problems = append(r.problems, "the log is not complete: "+err.Error())
	}
	if err := s.close(); err != nil {
		r.verdict, r.problems = failed, append(r.problems, "the lab: "+err.Error())
	}
	return r
}
