// Package program is the player of a workload that a program of the user plays. The program runs on this computer, and docs/bench.md says
// what it reads and prints.
package program

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/child"
)

const (
	exitGrace = 3 * time.Second // from SIGTERM to SIGKILL
	maxLine   = 1 << 20
	shown     = 100 // bytes of a line in an error
)

// Options say how the user's program runs.
type Options struct {
	Name   string   // of the program, for errors
	Argv   []string // the first one is a path
	Folder string   // the working directory
	Env    []string
	Log    string // a file to which stderr is appended
}

// Player implements [player.Player]. It plays a workload with a program of the user. It takes the methods Limits, Usage, Requests and
// Clean from the player of the cluster's scheduler.
type Player struct {
	player.Player
	o Options
}

// New returns a player that runs the user's program. scheduler is the player of the cluster's scheduler.
func New(scheduler player.Player, o Options) *Player { return &Player{scheduler, o} }

// Observed implements [player.Player]. The player of the scheduler has observed nothing.
func (p *Player) Observed() player.Observations { return player.Observations{} }

// Play implements [player.Player]. The program runs in a session of its own, so that Ctrl-C reaches only nixbench. nixbench then
// ends all processes of the program.
func (p *Player) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	log, err := os.OpenFile(p.o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if len(jobs) > 0 {
		if err := os.WriteFile(p.jobsFile(), workload.Encode(jobs), 0o600); err != nil {
			return err
		}
	}
	stdin, answer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer answer.Close()
	output, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := p.run(run, stdin, stdout, log)
		stdin.Close()
		stdout.Close()
		ended <- err
	}()
	c, bad := p.read(output, jobs, func() time.Time {
		at := begin()
		_, _ = fmt.Fprintf(answer, "{\"event\": \"begin\", \"time\": %d}\n", at.UnixMicro()) // an error means that the program has closed stdin
		answer.Close()
		return at
	}, send)
	if bad != nil {
		stop()
		_, _ = io.Copy(io.Discard, output) // run ends when its output is read
	}
	exit := <-ended
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case bad != nil:
		return fmt.Errorf("%s: %w", p.o.Name, bad)
	case exit != nil:
		return fmt.Errorf("%s: %w%s; its messages are in %s", p.o.Name, exit, lastLine(p.o.Log), p.o.Log)
	case c == nil:
		return fmt.Errorf(`%s: it has ended without {"event": "begin"}%s; its messages are in %s`, p.o.Name, lastLine(p.o.Log), p.o.Log)
	}
	if err := c.complete(); err != nil {
		return fmt.Errorf("%s: %w; its messages are in %s", p.o.Name, err, p.o.Log)
	}
	return nil
}

func (p *Player) jobsFile() string { return filepath.Join(p.o.Folder, "jobs.jsonl") }

// run runs the user's program until it ends or ctx ends. It then kills what remains of the program's process group.
func (p *Player) run(ctx context.Context, stdin *os.File, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, p.o.Argv[0], p.o.Argv[1:]...)
	cmd.Env = append(slices.Clip(p.o.Env), "NIXBENCH_JOBS="+p.jobsFile())
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.o.Folder, stdin, stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	child.SetDeathSignal(cmd.SysProcAttr, syscall.SIGTERM)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = exitGrace
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails if no process remains
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // a child process has kept stdout open
	}
	return err
}

// read reads the events that the program prints. It returns nil instead of a check if the program has not printed the event begin.
func (p *Player) read(output io.Reader, jobs []workload.Job, begin func() time.Time, send func(player.Event)) (*check, error) {
	var c *check
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		read := time.Now()
		l, err := parseLine(text)
		switch {
		case err != nil:
		case c != nil:
			var e player.Event
			if e, err = c.event(l, read); err == nil {
				send(e)
			}
		case l == line{Event: beginEvent}:
			c = newCheck(jobs, begin())
		default:
			err = errors.New(`the first event is {"event": "begin"}, when the program is ready`)
		}
		if err != nil {
			return c, fmt.Errorf("line %d of its output, %s: %w", n, text[:min(len(text), shown)], err)
		}
	}
	if err := lines.Err(); err != nil {
		return c, fmt.Errorf("read its output: %w", err)
	}
	return c, nil
}

// lastLine returns ": " and the last line of a file, or an empty string for an empty file.
func lastLine(file string) string {
	data, err := os.ReadFile(file)
	text := strings.TrimSpace(string(data))
	if err != nil || text == "" {
		return ""
	}
	text = text[strings.LastIndexByte(text, '\n')+1:]
	return ": " + text[:min(len(text), 3*shown)]
}
