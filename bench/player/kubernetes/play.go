package kubernetes

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/engine"
)

const (
	maxCreates   = 4                // maximum number of kubectl create commands at the same time
	maxObjects   = 100              // maximum number of Kubernetes Jobs that one command creates
	setupTimeout = 30 * time.Second // time limit for the start of the watch
	streamPoll   = time.Millisecond // time between two reads of the watch if jobs wait for the end of others
	maxDelay     = time.Second      // time from the creation of a pod until the watch receives it; a longer time makes the trial suspect
)

// stampsCommand prints the stamps that tasks have printed. The kubelet keeps the output of a container until its pod is deleted.
var stampsCommand = []string{"sh", "-c", "find /var/log/pods -path '*/" + namespace + "_*' -name '*.log' -exec cat {} + | grep -a ' nixbench ' || :"}

// Play implements [player.Player]. For each time at which jobs are due, it runs one kubectl create command, or several if there
// are many jobs. At most maxCreates commands run at once; other due jobs wait.
func (p *Player) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	if err := p.objects.check(jobs); err != nil {
		return err
	}
	defer p.watch.Stop(ctx)
	var t *trial
	m := player.Measurement{
		Jobs: jobs, SetUp: p.setUp,
		JobOf: func(id string, task int) (string, int) {
			job, number := t.jobOf(id, task+1)
			return job, number - 1
		},
		Capacity: func() float64 { return t.submissions.Rate() },
		Follow: func(ctx context.Context, start time.Time) error {
			if t = newTrial(jobs, start); p.objects.Arrays {
				t.limit = largestArray
			}
			return p.follow(ctx, t)
		},
		Events: func(clocks map[string]player.Clocks) []player.Event {
			node := p.Place().Commands
			p.Doubt(node, t.watchDoubts()...)
			return t.listEvents(node, clocks[node])
		},
	}
	if p.objects.stamped() {
		m.Stamps = stampsCommand
	}
	return p.Measure(ctx, m, begin, send)
}

// setUp creates the namespace, makes all workers pull the image, and starts the watch of the pods. It returns when the watch has begun, so that no change gets a
// time that is too late, and when pods can be created. Pods need the service account of the namespace. A client needs its
// rights, which take effect some moments after their creation.
func (p *Player) setUp(ctx context.Context) error {
	if err := p.ensure(ctx, nil, "namespace", namespace); err != nil {
		return fmt.Errorf("kubernetes: create the namespace %s: %w", namespace, err)
	}
	if err := p.pullImage(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, setupTimeout, fmt.Errorf("the watch has not begun within %v", setupTimeout))
	defer cancel()
	if err := p.giveAccess(ctx); err != nil {
		return err
	}
	pod, err := p.objects.firstPod()
	if err != nil {
		return err
	}
	for {
		_, err := p.RunLong(ctx, p.Place().Commands, bytes.NewReader(pod), p.kubectl("create", "--validate=false", "--filename=-")...)
		if err == nil || strings.Contains(err.Error(), "(AlreadyExists)") {
			break
		}
		if !strings.Contains(err.Error(), "serviceaccount") || !engine.Sleep(ctx, engine.PollInterval) {
			return fmt.Errorf("kubernetes: create a pod: %w", err)
		}
	}
	return p.startWatch(ctx)
}

type creation struct {
	jobs   []workload.Job
	arrays [][]workload.Job // the jobs, divided into Kubernetes Jobs
	out    []byte           // what the command printed, see createProgram
	err    error
	at     time.Time // when the command ended
}

func (p *Player) follow(ctx context.Context, t *trial) error {
	poll := p.watch.Poll
	if p.watch.Wait = t.queue.IsHolding(); p.watch.Wait { // a job that waits for others is submitted when the watch has received their end
		poll = streamPoll
	}
	return player.Loop{
		Poll: poll, Tasks: maxCreates, Done: func() bool { return len(t.ended) == len(t.jobs) },
		Submit: func(now time.Time) (player.Task, time.Time) {
			jobs := t.take(now)
			if len(jobs) == 0 {
				return nil, t.queue.Next(now.Add(p.watch.Poll))
			}
			t.addSubmission(jobs)
			arrays := p.objects.arrays(jobs)
			for _, array := range arrays {
				t.arrays[array[0].ID] = array
			}
			return func() func() error {
				out, err := p.create(ctx, jobs)
				c := creation{jobs, arrays, out, err, time.Now()}
				return func() error { return t.addCreation(c) }
			}, now
		},
		Read: p.watch.Read(t.addChanges),
	}.Run(ctx)
}

// createProgram runs kubectl, and prints all output of kubectl followed by its exit status. The error of a failed command would
// contain only the end of stderr.
const createProgram = `"$@" 2>&1
echo "` + exitStatus + `$?"`

// exitStatus is the beginning of the last line that createProgram prints.
const exitStatus = "exit status "

func (p *Player) create(ctx context.Context, jobs []workload.Job) ([]byte, error) {
	list, err := p.objects.jobList(jobs)
	if err != nil {
		return nil, err
	}
	argv := p.kubectl("create", "--validate=false", "--output=name", "--filename=-")
	return p.RunLong(ctx, p.Place().Commands, bytes.NewReader(list), append([]string{"sh", "-c", createProgram, "sh"}, argv...)...)
}

const (
	accessFolder = "/run/nixbench-bench-access"
	accessFile   = accessFolder + "/kubeconfig"
	// accessName is the name of the service account in access.json with which the client (the node that submits jobs) uses the API.
	accessName = "nixbench-bench-client"
	// tokenLife is how long the token of the service account is valid. The token ends earlier if its namespace is deleted.
	tokenLife = "168h"
)

// accessObjects are the Kubernetes objects in the namespace that allow the client to create jobs and watch pods.
//
//go:embed access.json
var accessObjects []byte

// giveAccess writes a kubeconfig to the client, the node that submits jobs. The kubeconfig contains a token with only the rights
// that a trial needs.
func (p *Player) giveAccess(ctx context.Context) error {
	if p.Client == "" {
		return nil
	}
	if err := p.ensure(ctx, accessObjects, "--validate=false", "--filename=-"); err != nil {
		return fmt.Errorf("kubernetes: create the service account of the client: %w", err)
	}
	token, err := p.runAdmin(ctx, nil, "create", "token", accessName, "--namespace="+namespace, "--duration="+tokenLife)
	if err != nil {
		return fmt.Errorf("kubernetes: create the token of the client: %w", err)
	}
	access, err := p.engine.ReadAdminAccess(ctx)
	if err != nil {
		return fmt.Errorf("kubernetes: read the address of the API: %w", err)
	}
	kubeconfig, err := access.WithToken(strings.TrimSpace(string(token))).Kubeconfig()
	if err != nil {
		return err
	}
	if _, err := p.RunLong(ctx, p.Client, bytes.NewReader(kubeconfig), "sh", "-c", "umask 077; mkdir -p "+accessFolder+" && cat > "+accessFile); err != nil {
		return fmt.Errorf("kubernetes: write the kubeconfig of the client: %w", err)
	}
	return nil
}
