package batch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// Compute is the role of the nodes that run jobs.
const Compute = "compute"

// Head is the node with the queue of a batch system. All commands of the system run there.
type Head struct {
	engine.Cluster
	Kind string // name of the engine's kind, such as slurm; the engine's options begin with nixbench.KIND
	Role string // of the head
	// NotSetUp matches the error of a command on a node that has not been set up as a head yet.
	NotSetUp *regexp.Regexp
	// Owner is the first part of a command line, such as setpriv with its options: the rest runs as a user who may submit jobs.
	Owner     []string
	List      string // the command with which a user lists the jobs
	Cancel    string // the command with which a user cancels a job
	Undrained string // text for the user: what happens to the jobs of a node with --no-drain
}

// ErrAbsent is returned if the hive has no head, or if the head has not been set up yet, so that the cluster does not exist.
var ErrAbsent = errors.New("no controller or leader is set up yet")

// Node returns the name of the head, or an empty string if the hive has none.
func (h *Head) Node() string { return h.FirstOf(h.Role) }

func (h *Head) RunOnHead(ctx context.Context, argv ...string) (string, error) {
	if h.Node() == "" {
		return "", ErrAbsent
	}
	out, err := h.Command(ctx, h.Node(), argv...)
	if err != nil && h.NotSetUp.MatchString(err.Error()) {
		return "", ErrAbsent
	}
	return string(out), err
}

// Job is a test job of nixbench check --deep. Command runs the job and waits for its end.
type Job struct {
	Command []string
	Stdin   string
	Cancel  []string // the command that cancels the job
}

// NewJobName returns a random name for a test job. The command that cancels the job by this name cancels no other job.
func NewJobName() string { return "nixbench-check-" + strings.ToLower(rand.Text()[:8]) }

// runJob runs the command of a test job as the user Owner. If the command fails, runJob cancels the job.
func (h *Head) runJob(ctx context.Context, j Job) error {
	if h.Node() == "" {
		return ErrAbsent
	}
	_, err := h.Run(ctx, h.Node(), strings.NewReader(j.Stdin), append(slices.Clone(h.Owner), j.Command...)...)
	if err == nil {
		return nil
	}
	text := engine.LastLine(err).Error()
	if ctx.Err() != nil {
		text = fmt.Sprintf("the job has not ended in time; on the %s: %s", h.Role, h.List)
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := h.RunOnHead(late, append(slices.Clone(h.Owner), j.Cancel...)...); err != nil {
		text += "; its job cannot be cancelled: " + engine.LastLine(err).Error()
	}
	return errors.New(text)
}

// maxExplained is the maximum number of nodes whose logs an error quotes. Further nodes usually have the same problem.
const maxExplained = 3

// Explain returns the names of the first [maxExplained] nodes, each with the last lines that the systemd unit of the node has logged.
func (h *Head) Explain(ctx context.Context, nodes []string, unitOf func(node string) string) string {
	var texts []string
	for _, node := range nodes[:min(maxExplained, len(nodes))] {
		if node != "" { // the hive has a head
			texts = append(texts, node+":\n"+h.ReadLog(ctx, node, unitOf(node)))
		}
	}
	return strings.Join(texts, "\n")
}
