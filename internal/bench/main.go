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
	"strings"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

const (
	timeLimit = 2 * time.Hour   // for all measurements together
	runLimit  = 5 * time.Minute // for one run of a deploy tool
)

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

// parse parses the arguments, builds nixbench unless -program is given, adds the tools to r, and returns the scenarios to measure.
func (r *runner) parse(args []string) ([]scenario, error) {
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	names := set.String("scenario", "", "run only these scenarios: `NAMES` between commas (default: all)")
	set.IntVar(&r.generations, "generations", 0, "first give the nodes `N` generations of the system profile")
	set.IntVar(&r.size, "size", 300, "size of the path that copy-one and copy-all copy, in `MB`")
	set.IntVar(&r.machines, "machines", 10, "start `N` machines")
	set.IntVar(&r.repeat, "repeat", 3, "measure `N` times, and print medians")
	set.IntVar(&r.load, "load", 0, "run `N` busy loops at the same time")
	program := set.String("program", "", "measure this `BINARY` of nixbench (default: build it from these sources)")
	against := set.String("against", "", "run this `BINARY` of nixbench in turn with the first one, and print ratios")
	command := set.String("against-command", "", "the same with a command `LINE` of sh. Its variables: HIVE, the folder of\nhive.nix; GOAL: switch, upload-keys, push or build; ON: the nodes, * or a name")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() > 0 || r.machines < 1 || r.repeat < 1 || *against != "" && *command != "" {
		return nil, errors.New("expected at least one machine and one run, at most one of -against and -against-command, and no arguments")
	}
	selected, err := selectScenarios(*names)
	if err == nil && *program == "" {
		*program = filepath.Join(r.dir, "nixbench")
		err = fixture.BuildProgram(*program)
	}
	if err != nil {
		return nil, err
	}
	if err := r.addTool("new", *program, ""); err != nil || *against+*command == "" {
		return selected, err
	}
	return selected, r.addTool("against", *against, *command)
}

// A tool is a deploy tool that is measured: a nixbench, or a shell command.
type tool struct {
	label, program, command string // command is used instead of program
	dir                     string // folder of the tool's hive and state
	applied                 hive   // the hive that the tool has applied last
	current                 bool   // the nodes still have what this tool has applied last
}

// addTool adds a tool to measure, and creates its folder. The program may be a relative path; command is used instead of it.
func (r *runner) addTool(label, program, command string) error {
	program, err := filepath.Abs(program)
	t := &tool{label: label, program: program, command: command, dir: filepath.Join(r.dir, "hive-"+label)}
	r.tools = append(r.tools, t)
	return errors.Join(err, os.Mkdir(t.dir, 0o700))
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

// startLoad starts processes with busy loops. They end with ctx, when this process ends, or after an hour of processor time.
func startLoad(ctx context.Context, loops int) error {
	for range loops {
		cmd := exec.CommandContext(ctx, "sh", "-c", "ulimit -t 3600; while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; done")
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start a busy loop: %w", err)
		}
		go cmd.Wait()
	}
	return nil
}
