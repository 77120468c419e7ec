package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// process is a run of nixbench, which may still be in progress.
type process struct {
	cmd     *exec.Cmd
	began   time.Time
	running context.Context // ends when the run has ended
	end     outcome         // valid when the run has ended
}

// outcome is the result of a run of nixbench.
type outcome struct {
	code   int  // exit code; -1 if a signal ended the run
	hung   bool // the run was killed, because it exceeded its time limit
	took   time.Duration
	events []streamEvent
	stdout string // all lines
	stderr string
}

// longest is the time limit of a run of nixbench. It is longer than the time limits that these tests pass
// to nixbench.
const longest = 4 * time.Minute

// start starts nixbench with --json, and calls watch with each event of nixbench.
func (s *sandbox) start(ctx context.Context, watch func(streamEvent), args ...string) (*process, error) {
	args = append(args, "--json")
	ctx, cancel := context.WithTimeout(ctx, longest)
	running, over := context.WithCancel(context.WithoutCancel(ctx))
	p := &process{cmd: s.nixbench(ctx, args...), began: time.Now(), running: running}
	var stderr bytes.Buffer
	p.cmd.Stderr = &stderr
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		over()
		cancel()
		return nil, err
	}
	go func() {
		defer over()
		defer cancel()
		var all strings.Builder
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			all.WriteString(lines.Text() + "\n")
			var o streamEvent
			if json.Unmarshal(lines.Bytes(), &o) != nil {
				continue // checks read such a line in stdout
			}
			p.end.events = append(p.end.events, o)
			watch(o)
		}
		err := p.cmd.Wait()
		p.end.hung = errors.Is(ctx.Err(), context.DeadlineExceeded)
		p.end.code, p.end.took = p.cmd.ProcessState.ExitCode(), time.Since(p.began)
		p.end.stdout, p.end.stderr = all.String(), stderr.String()
		fmt.Fprintf(s.log, "\n$ nixbench %s\n%s%s# exit code %d (%v) after %.1f s\n",
			strings.Join(args, " "), all.String(), stderr.String(), p.end.code, err, p.end.took.Seconds())
		s.output = append(s.output, all.String(), stderr.String())
	}()
	return p, nil
}

func (p *process) wait() outcome {
	<-p.running.Done()
	return p.end
}

// run runs nixbench, and waits until it has ended.
func (s *sandbox) run(ctx context.Context, args ...string) (outcome, error) {
	p, err := s.start(ctx, func(streamEvent) {}, args...)
	if err != nil {
		return outcome{}, err
	}
	return p.wait(), ctx.Err()
}

// message returns the run's error message.
func (o outcome) message() string {
	var all []string
	for _, e := range o.events {
		var problems []struct{ Where, Message string }
		if e.Event != "error" || json.Unmarshal(e.Problems, &problems) != nil {
			continue
		}
		for _, p := range problems {
			all = append(all, strings.TrimPrefix(p.Where+": "+p.Message, ": "))
		}
	}
	if all == nil {
		return strings.TrimSpace(o.stderr)
	}
	return strings.Join(all, "\n")
}
