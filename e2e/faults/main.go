package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		stop()
		os.Exit(1)
	}
}

// run parses the command line, and then lists or tests the seeds that it names.
func run(ctx context.Context, args []string) error {
	var o options
	var only string
	var list bool
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.Uint64Var(&o.seed, "seed", 1, "the first seed")
	flags.Uint64Var(&o.seeds, "seeds", 1, "how many seeds, from the first one on")
	flags.IntVar(&o.workers, "workers", max(1, runtime.NumCPU()*3/4), "seeds at the same time, each with a lab of its own")
	flags.StringVar(&o.out, "out", "", "folder for the report and for what explains failures (default: a new one in the temporary folder)")
	flags.StringVar(&only, "only", "", "only seeds whose choice, as -list prints it, matches this regular expression")
	flags.BoolVar(&list, "list", false, "print what the seeds choose, and run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || o.workers < 1 || o.seeds < 1 {
		return errors.New("usage: go run ./e2e/faults [-seed N] [-seeds N] [-workers N] [-out DIR] [-only REGEXP] [-list]")
	}
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	var choices []choice
	for seed := o.seed; seed < o.seed+o.seeds; seed++ {
		if c := choose(seed); match.MatchString(c.String()) {
			choices = append(choices, c)
		}
	}
	if list {
		for _, c := range choices {
			fmt.Println(c)
		}
		return nil
	}
	return runSeeds(ctx, o, choices)
}
