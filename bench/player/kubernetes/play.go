package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/engine"
)

const (
	maxCreates   = 4                // maximum number of kubectl create commands at the same time
	maxObjects   = 100              // maximum number of jobs that one command creates
	setupTimeout = 30 * time.Second // time limit for the start of the watch
	maxDelay     = time.Second      // time from the creation of a pod until the watch receives it; a longer time makes the trial suspect
)

// Play implements [player.Player]. For each time at which jobs are due, it runs one kubectl create command, or several if there
// are many jobs. At most maxCreates commands run at once; other due jobs wait. Play sends the events of submissions and pods at
// the end, when it has read the clock of the node again.
func (p *Player) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	if err := p.objects.check(jobs); err != nil {
		return err
	}
	node := p.Place().Commands
	clock, err := p.ReadClock(ctx, node)
	if err == nil {
		err = p.setUp(ctx)
	}
	defer p.watch.stop(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	t := newTrial(jobs, begin(), send)
	err = p.follow(ctx, t)
	clocks := p.ReadClockAgain(ctx, node, clock)
	p.Doubt(node, t.watchDoubts()...)
	t.sendEvents(clocks)
	return err
}

// setUp creates the namespace and starts the watch of the pods. It returns when the watch has begun, so that no change gets a
// time that is too late, and when pods can be created. Pods need the service account of the namespace. A client needs its
// rights, which take effect some moments after their creation.
func (p *Player) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, setupTimeout, fmt.Errorf("the watch has not begun within %v", setupTimeout))
	defer cancel()
	_, err := p.runAdmin(ctx, nil, "create", "namespace", namespace)
	if err != nil && !strings.Contains(err.Error(), "(AlreadyExists)") {
		return fmt.Errorf("kubernetes: create the namespace %s: %w", namespace, err)
	}
	if err := p.giveAccess(ctx); err != nil {
		return err
	}
	pod, err := p.objects.firstPod()
	if err != nil {
		return err
	}
	for {
		_, err := p.runKubectl(ctx, pod, "create", "--validate=false", "--filename=-")
		if err == nil || strings.Contains(err.Error(), "(AlreadyExists)") {
			break
		}
		if !strings.Contains(err.Error(), "serviceaccount") || !engine.Sleep(ctx, engine.PollInterval) {
			return fmt.Errorf("kubernetes: create a pod: %w", err)
		}
	}
	if err := p.watch.start(ctx, p.kubectl); err != nil {
		return err
	}
	for {
		changes, _, err := p.watch.read(ctx, 0)
		for _, c := range changes {
			if c.pod == firstPodName {
				return nil
			}
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if !engine.Sleep(ctx, engine.PollInterval) {
			return fmt.Errorf("kubernetes: %w", context.Cause(ctx))
		}
	}
}

// creation is the result of a kubectl create command.
type creation struct {
	jobs []workload.Job
	out  []byte // what the command printed, see createProgram
	err  error
	at   time.Time // when the command ended
}

// follow submits jobs and reads the lines of the watch until all jobs have ended.
func (p *Player) follow(ctx context.Context, t *trial) error {
	offset, active := 0, time.Now()
	return player.Loop{
		Poll: p.poll, Tasks: maxCreates, Done: func() bool { return len(t.ended) == len(t.jobs) },
		Submit: func(now time.Time) (player.Task, time.Time) {
			jobs := t.take(now)
			if len(jobs) == 0 {
				return nil, t.nextDue(now.Add(p.poll))
			}
			t.addSubmission(jobs)
			return func() func() error {
				out, err := p.create(ctx, jobs)
				c := creation{jobs, out, err, time.Now()}
				return func() error {
					active = time.Now()
					return t.addCreation(c)
				}
			}, now
		},
		Read: func() func() (func() error, error) {
			from := offset
			return func() (func() error, error) {
				changes, next, err := p.watch.read(ctx, from)
				return func() error {
					if offset = next; len(changes) > 0 {
						active = time.Now()
					}
					t.addChanges(changes)
					if time.Since(active) <= p.quiet {
						return nil
					}
					active = time.Now()
					return p.watch.check(ctx)
				}, err
			}
		},
		Last: func(ctx context.Context) {
			if changes, _, err := p.watch.read(ctx, offset); err == nil {
				t.addChanges(changes)
			}
		},
	}.Run(ctx)
}

// createProgram runs kubectl, and prints all output of kubectl followed by its exit status. The error of a failed command would
// contain only the end of stderr.
const createProgram = `"$@" 2>&1
echo "` + exitStatus + `$?"`

// exitStatus is the beginning of the last line that createProgram prints.
const exitStatus = "exit status "

// create creates the Kubernetes objects of jobs. It returns the output of createProgram.
func (p *Player) create(ctx context.Context, jobs []workload.Job) ([]byte, error) {
	list, err := p.objects.jobList(jobs)
	if err != nil {
		return nil, err
	}
	argv, err := p.kubectl("create", "--validate=false", "--output=name", "--filename=-")
	if err != nil {
		return nil, err
	}
	return p.RunLong(ctx, p.Place().Commands, bytes.NewReader(list), append([]string{"sh", "-c", createProgram, "sh"}, argv...)...)
}
