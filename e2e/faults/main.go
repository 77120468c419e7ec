package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

func main() {
	if err := isolateMounts(); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		stop()
		os.Exit(1)
	}
}

// run parses the command line, and then tests the seeds that it names.
func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.Uint64Var(&o.seed, "seed", 1, "the first seed")
	flags.Uint64Var(&o.seeds, "seeds", 1, "how many seeds, from the first one on")
	flags.IntVar(&o.workers, "workers", max(1, runtime.NumCPU()*3/4), "seeds at the same time, each with a lab of its own")
	flags.StringVar(&o.out, "out", "", "folder for the logs (default: a new one in the temporary folder)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || o.workers < 1 || o.seeds < 1 {
		return errors.New("usage: go run ./e2e/faults [-seed N] [-seeds N] [-workers N] [-out DIR]")
	}
	return runSeeds(ctx, o)
}

// isolateMounts starts this program again in a mount namespace of its own, in which it mounts a small file system for each state folder. The
// kernel removes these mounts when the program has ended. Programs that it starts see them, too.
func isolateMounts() error {
	const isolated = "NIXBENCH_FAULTS_ISOLATED"
	if os.Getenv(isolated) != "" {
		return nil
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{"unshare", "--mount", "--propagation", "private", self}, os.Args[1:]...)
	return syscall.Exec(unshare, args, append(os.Environ(), isolated+"=1"))
}
