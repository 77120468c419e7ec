package batch

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// brokenDrainTimeout is the time limit of a drain of a node whose daemon does not work: the batch system cannot observe
// the end of the node's jobs.
const brokenDrainTimeout = 10 * time.Second

// answerTimeout is the maximum time for which a drain waits for an answer of the batch system.
const answerTimeout = time.Minute

// JobWait describes a wait for the jobs of nodes that get no new jobs.
type JobWait struct {
	Nodes  []string
	Broken []string // the nodes among them whose daemons do not work
	Limit  time.Duration
	// Observe asks the batch system once, and returns a function that reports whether a node has jobs.
	Observe func(ctx context.Context) (isBusy func(node string) bool, err error)
	// List returns the ids of the jobs on a node, or nil if they cannot be listed.
	List func(ctx context.Context, node string) []string
	// NewError returns the error if a node still has jobs after the time limit.
	NewError func(node string, jobs []string) error
	Report   engine.Report
}

// WaitForJobs waits until the nodes have no jobs. It waits only shortly for broken nodes. If it fails, it returns an
// [engine.DrainError].
func WaitForJobs(ctx context.Context, w JobWait) error {
	begin := time.Now()
	answered := begin
	reported := map[string]string{}
	for _, name := range w.Nodes {
		w.Report(name, "gets no new jobs")
	}
	for {
		isBusy, err := w.Observe(ctx)
		if err == nil {
			answered = time.Now()
		}
		var busy []string
		for _, name := range w.Nodes {
			ignored := slices.Contains(w.Broken, name) && time.Since(begin) > brokenDrainTimeout
			if err == nil && !ignored && isBusy(name) {
				busy = append(busy, name)
			}
		}
		switch {
		case ctx.Err() != nil:
			return &engine.DrainError{Node: w.Nodes[0], Err: context.Cause(ctx)}
		case err != nil && time.Since(answered) > min(w.Limit, answerTimeout):
			return &engine.DrainError{Node: w.Nodes[0], Err: err}
		case err == nil && len(busy) == 0:
			return nil
		}
		for _, name := range busy {
			jobs := w.List(ctx, name)
			if time.Since(begin) > w.Limit {
				return &engine.DrainError{Node: name, Err: w.NewError(name, jobs)}
			}
			if text := "waits for " + FormatJobs(jobs); reported[name] != text {
				reported[name] = text
				w.Report(name, text)
			}
		}
		Sleep(ctx, PollInterval)
	}
}

// FormatJobs returns a text that names at most six jobs.
func FormatJobs(jobs []string) string {
	const most = 6
	switch {
	case len(jobs) == 0:
		return "jobs that are ending"
	case len(jobs) > most:
		return fmt.Sprintf("jobs %s and %d more", strings.Join(jobs[:most], ", "), len(jobs)-most)
	}
	return "jobs " + strings.Join(jobs, ", ")
}

// NewCheckJob returns a name for the job of a deep check, by which only this job is cancelled.
func NewCheckJob() string { return "nixbench-check-" + strings.ToLower(rand.Text()[:8]) }
