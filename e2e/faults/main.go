// Command faults injects faults into runs of nixbench, and checks that the next run repairs
// everything:
//
//	go run ./e2e/faults -seeds 100        # seeds 1 to 100, several at the same time
//	go run ./e2e/faults -seed 42          # one of them
//
// A seed selects the operation, the fault, and its phase, delay and node. Each seed has a lab of its own: an empty hypervisor, on which
// nixbench creates two containers. When the operation has ended, the fault is healed, and these must hold:
//
//   - the operation's exit code is a documented one, and its message names what failed;
//   - the next apply succeeds within a time limit; after a destroy, for every second seed, another
//     destroy succeeds before, and removes everything;
//   - the apply after it finds nothing to do;
//   - all nodes can be reached, and run the system and have the key that the hive says;
//   - state.json has no intent left;
//   - destroy removes every machine, disk, network, key and record of a machine;
//   - no secret is in what nixbench printed or recorded, nor in libvirt's logs.
//
// It needs root and the packages of e2e/lab.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	seed := flag.Uint64("seed", 1, "the first seed")
	seeds := flag.Uint64("seeds", 1, "how many seeds, from the first one on")
	workers := flag.Int("workers", max(1, runtime.NumCPU()*3/4), "seeds at the same time, each with a lab of its own")
	out := flag.String("out", "", "folder for the logs (default: a new one in the temporary folder)")
	flag.Parse()
	err := errors.New("expected no arguments, and at least one seed and one worker")
	if flag.NArg() == 0 && *workers > 0 && *seeds > 0 {
		err = isolateMounts()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err == nil {
		err = runSeeds(ctx, *seed, *seeds, *workers, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

// isolateMounts starts this program again in a mount namespace of its own, in which it mounts a small file system for each state folder. The
// kernel removes these mounts when the program has ended. Programs that it starts see them, too.
func isolateMounts() error {
	self, err := os.Executable()
	if err != nil || os.Getenv("NIXBENCH_FAULTS_ISOLATED") != "" {
		return err
	}
	args := []string{"env", "NIXBENCH_FAULTS_ISOLATED=1", "unshare", "--mount", "--propagation", "private", self}
	return syscall.Exec("/usr/bin/env", append(args, os.Args[1:]...), os.Environ())
}

// runSeeds tests seeds, from the given one on, and prints a line for each. The error contains the number of seeds that failed.
func runSeeds(ctx context.Context, first, seeds uint64, limit int, out string) error {
	if out == "" {
		var err error
		if out, err = os.MkdirTemp("", "nixbench-faults-report-"); err != nil {
			return err
		}
	}
	k, err := assemble()
	defer k.remove()
	if err != nil {
		return err
	}
	began := time.Now()
	counts := map[verdict]int{}
	var mu sync.Mutex // guards counts, and the order of the lines
	var workers errgroup.Group
	workers.SetLimit(limit)
	for seed := first; seed < first+seeds; seed++ {
		workers.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			r := k.seed(ctx, choose(seed), out)
			if ctx.Err() != nil {
				return nil // the result of an interrupted seed is not valid
			}
			mu.Lock()
			defer mu.Unlock()
			counts[r.verdict()]++
			fmt.Println(r.line())
			return nil
		})
	}
	_ = workers.Wait()
	fmt.Printf("\n%d seeds: %d converged, %d failed, %d missed (the run ended before the fault); %.0f s with %d workers; logs: %s\n",
		seeds, counts[converged], counts[failed], counts[missed], time.Since(began).Seconds(), limit, out)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if counts[failed] > 0 {
		return fmt.Errorf("%d of %d seeds failed", counts[failed], seeds)
	}
	return nil
}

// line describes the result of a seed in one line, which is followed by its problems.
func (r result) line() string {
	text := fmt.Sprintf("seed %3d  %-11s %-24s in %-9s +%-7s %-4s exit %3d  operation %5.1f s  next apply %5.1f s  %s",
		r.seed, r.operation.name, r.fault.name, r.phase, r.delay, r.victim, r.exit, r.took.Seconds(), r.converge.Seconds(), r.verdict())
	for _, p := range r.problems {
		text += "\n    " + strings.ReplaceAll(p, "\n", "\n    ")
	}
	return text
}

// seed runs the test of one choice in a separate lab, and writes a log. If the test fails, the state folder and libvirt's
// logs are kept, too.
func (k *kit) seed(ctx context.Context, c choice, out string) result {
	var log strings.Builder
	s, err := newSandbox(k, fmt.Sprintf("/tmp/nixbench-lab/faults-%d-%d", os.Getpid(), c.seed), &log)
	r := result{choice: c}
	if err != nil {
		r.problems = []string{"the lab: " + err.Error()}
	} else {
		r = s.try(ctx, c, nil)
	}
	dir := filepath.Join(out, fmt.Sprintf("seed-%d", c.seed))
	err = os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "log"), []byte(log.String()+"\n"+r.line()+"\n"), 0o644)
	}
	if err == nil && r.verdict() == failed {
		err = s.save(dir)
	}
	if err != nil {
		r.problems = append(r.problems, "the log is not complete: "+err.Error())
	}
	if err := s.close(); err != nil {
		r.problems = append(r.problems, "the lab: "+err.Error())
	}
	return r
}
