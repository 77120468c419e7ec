// Command bench measures the speed of nixbench. Each benchmark measures both sides of
// a comparison in one run, so that their ratio is meaningful on any machine:
//
//	go run ./bench instantiate   # evaluation, in one process and in chunks
//	go run ./bench fleet         # apply to 1,000 simulated nodes, one of them stuck
//	go run ./bench noop          # apply where there is nothing to do
//
// instantiate needs Nix and uses the mini NixOS fixture. The other benchmarks need ssh;
// their nodes are SSH servers in a separate process. The exit status is 1 if a
// measurement exceeds its budget.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

var benchmarks = map[string]func(ctx context.Context, dir string, args []string) error{
	"instantiate": benchInstantiate,
	"fleet":       benchFleet,
	"noop":        benchNoop,
}

// partVariable is the environment variable that makes this program run as a part of a benchmark:
// the nodes or the client.
const partVariable = "NIXBENCH_BENCH_PART"

var parts = map[string]func(context.Context) error{
	"nodes":  serveNodes,
	"client": runClient,
}

func main() {
	if err := run(); err != nil {
		slog.Error(err.Error())
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if part := parts[os.Getenv(partVariable)]; part != nil {
		return part(ctx)
	}
	if len(os.Args) < 2 || benchmarks[os.Args[1]] == nil {
		names := strings.Join(slices.Sorted(maps.Keys(benchmarks)), "|")
		return errors.New("usage: go run ./bench " + names)
	}
	dir, err := os.MkdirTemp("", "nixbench-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := benchmarks[os.Args[1]](ctx, dir, os.Args[2:]); err != nil {
		return fmt.Errorf("%s: %w", os.Args[1], err)
	}
	return nil
}
