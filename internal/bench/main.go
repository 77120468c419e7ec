// Command bench measures the speed of nixbench. It can also measure another deploy tool in turn with nixbench: the ratio of both is
// meaningful on any computer.
//
//	go run ./internal/bench                                       # as root: deployments to the machines of a lab; -h prints the flags
//	go test ./internal/bench -run '^$' -bench . -benchtime 1x     # apply to 1,000 simulated nodes
//
// For the time and the memory of an evaluation, run /usr/bin/time -v nixbench build.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

const (
	timeLimit = 2 * time.Hour   // for all measurements together
	runLimit  = 5 * time.Minute // for one run of a deploy tool
)

// options contains the flags of the command line.
type options struct {
	machines, repeat, load int
	program, against       string // paths of the measured nixbench, and of another one with which it is compared
	againstCommand         string // a shell command of another deploy tool, used instead of against
	dir                    string // folder for all files; it is removed at the end
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends this process at once
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	if _, err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// parse adds the flags to set, parses the arguments, and builds nixbench unless --program is given.
func (o *options) parse(set *flag.FlagSet, args []string) error {
	set.IntVar(&o.machines, "machines", 10, "start `N` machines")
	set.IntVar(&o.repeat, "repeat", 3, "measure `N` times, and print medians")
	set.IntVar(&o.load, "load", 0, "run `N` busy loops at the same time")
	set.StringVar(&o.program, "program", "", "measure this `BINARY` of nixbench (default: build it from these sources)")
	set.StringVar(&o.against, "against", "", "run this `BINARY` of nixbench in turn with the first one, and print ratios")
	set.StringVar(&o.againstCommand, "against-command", "", "the same with a command `LINE` of sh. Its variables: HIVE, the folder of\nhive.nix; GOAL: switch, upload-keys, push or build; ON: the nodes, * or a name")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 || o.machines < 1 || o.repeat < 1 || o.against != "" && o.againstCommand != "" {
		return errors.New("expected at least one machine and one run, at most one of -against and -against-command, and no arguments")
	}
	for _, path := range []*string{&o.program, &o.against} {
		if *path != "" {
			var err error
			if *path, err = filepath.Abs(*path); err != nil {
				return err
			}
		}
	}
	if o.program != "" {
		return nil
	}
	o.program = filepath.Join(o.dir, "nixbench")
	return fixture.BuildProgram(o.program)
}

// A tool is a deploy tool that is measured: a nixbench, or a shell command.
type tool struct {
	label, program, command string // command is used instead of program
	dir                     string // folder of the tool's hive and state
	applied                 hive   // the hive that the tool has applied last
	current                 bool   // the nodes still have what this tool has applied last
}

// makeTools returns the measured nixbench, and the tool with which it is compared, if there is one. It creates a folder for each of them.
func (o *options) makeTools() ([]*tool, error) {
	tools := []*tool{{label: "new", program: o.program}}
	if o.against+o.againstCommand != "" {
		tools = append(tools, &tool{label: "against", program: o.against, command: o.againstCommand})
	}
	for _, t := range tools {
		t.dir = filepath.Join(o.dir, "hive-"+t.label)
		if err := os.Mkdir(t.dir, 0o700); err != nil {
			return nil, err
		}
	}
	return tools, nil
}

// argv returns the command line for a goal (such as switch). on is the name of a node, or empty for all nodes. A shell command gets goal
// and on in environment variables.
func (t *tool) argv(goal, on string) []string {
	if t.command != "" {
		return []string{"env", "HIVE=" + t.dir, "GOAL=" + goal, "ON=" + cmp.Or(on, "*"), "sh", "-c", t.command}
	}
	argv := append([]string{t.program}, strings.Fields(map[string]string{"switch": "apply", "push": "apply push"}[goal])...)
	if len(argv) == 1 {
		argv = append(argv, goal)
	}
	if on != "" {
		argv = append(argv, "--on", on)
	}
	return argv
}

// measure runs a command, and returns the time and the other resources that it used on this computer.
func measure(cmd *exec.Cmd) (figures, error) {
	var output strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &output, &output, 10*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	begin := time.Now()
	err := cmd.Run()
	took := time.Since(begin)
	if err != nil {
		text := strings.TrimSpace(output.String())
		return nil, fmt.Errorf("%s: %w after %v:\n%s", strings.Join(cmd.Args, " "), err, took.Round(10*time.Millisecond), text[max(0, len(text)-2000):])
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return figures{wall: took.Seconds(), hereCPU: float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9, hereMemory: float64(usage.Maxrss) / 1000}, nil
}

// startLoad starts processes with busy loops. They end when stop is called, when this process ends, or after an hour of processor time.
func startLoad(loops int) (stop func(), err error) {
	var running []*exec.Cmd
	stop = func() {
		for _, cmd := range running {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	for range loops {
		cmd := exec.Command("sh", "-c", "ulimit -t 3600; while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; done")
		if err := cmd.Start(); err != nil {
			return stop, fmt.Errorf("start a busy loop: %w", err)
		}
		running = append(running, cmd)
	}
	return stop, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
