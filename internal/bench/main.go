// Command bench measures the speed of nixbench. A benchmark that compares two cases
// measures both in one run, so that their ratio is meaningful on any machine:
//
//	go run ./internal/bench instantiate   # evaluation, in one process and in chunks
//	go run ./internal/bench fleet         # apply to 1,000 simulated nodes, one of them stuck
//	go run ./internal/bench noop          # apply to nodes that already run their systems
//	go run ./internal/bench eval          # evaluation of 1 to 50 nodes with a real nixpkgs; `eval -h` lists the flags
//	go run ./internal/bench deploy        # deployments to the machines of a lab; `deploy -h` lists the flags
//
// instantiate needs Nix and uses the mini NixOS fixture. eval needs root, Nix and a nixpkgs. The other benchmarks need ssh;
// their nodes are SSH servers in a separate process. deploy needs root and the lab (e2e/lab). The exit status is 1 if a
// measurement exceeds its budget, for deploy only with -check.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

var benchmarks = map[string]func(ctx context.Context, dir string, args []string) error{
	"instantiate": benchInstantiate,
	"fleet":       benchFleet,
	"noop":        benchNoop,
	"eval":        benchEval,
	"deploy":      benchDeploy,
}

// timeLimit is the maximum duration of a benchmark. longLimit is that of deploy and eval, whose flags determine how much
// they measure.
const (
	timeLimit = 10 * time.Minute
	longLimit = 2 * time.Hour
)

// processVariable is the environment variable that selects the process that this program runs as,
// a key of processes. It is unset in the main process of a benchmark.
const processVariable = "NIXBENCH_BENCH_PART"

// processes contains the main functions of the other processes of a benchmark, by name.
var processes = map[string]func(context.Context) error{
	"nodes":    serveNodes,
	"client":   runClient,
	"evaluate": runEval,
}

func main() {
	if err := run(); err != nil {
		slog.Error(err.Error())
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends this process at once
	limit := timeLimit
	if len(os.Args) > 1 && (os.Args[1] == "deploy" || os.Args[1] == "eval") {
		limit = longLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if runProcess := processes[os.Getenv(processVariable)]; runProcess != nil {
		return runProcess(ctx)
	}
	if len(os.Args) < 2 || benchmarks[os.Args[1]] == nil {
		names := strings.Join(slices.Sorted(maps.Keys(benchmarks)), "|")
		return errors.New("usage: go run ./internal/bench " + names)
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
