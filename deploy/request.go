package deploy

import (
	"context"
	"os"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/facts"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Request says which hive and which of its nodes a command uses, and how. It is made of the flags of the command.
type Request struct {
	File, Flake string          // path of the hive or flake; both empty: the nearest hive in the working directory or a folder above
	Eval        nixeval.Options // Open sets Source, Send and, if the request names no facts, Facts

	Plan   *PlanFile // the plan to apply; nil: none
	System string    // store path of a system that is deployed to the only node without an evaluation; empty: none

	On    []string                                  // terms of --on; none: all nodes
	Pick  func(*nixeval.Hive) (nixeval.Node, error) // selects the only node, in place of On; nil: On selects
	Nodes NodeFilter

	// MayBeAway reports whether Open leaves a selected node out if the node does not answer. Nil: Open makes no connections.
	MayBeAway func(nixeval.Deployment) bool

	Command      string // name of a command that changes something; empty: the command only reads
	AllNodesOnly bool   // fail if On is empty and meta.allowApplyAll is false

	Parallel          int // maximum number of nodes that are asked at once; 0: all
	AcceptNewHostKeys bool
	SSHPrograms       bool          // allow SSH options of the hive that run programs on this computer
	Prompt            remote.Prompt // nil: the user cannot be asked
	Hypervisors       func(send event.Sink) machine.Opener

	Send     event.Sink
	Args     []string                            // the command line, for the record of the run
	Version  string                              // of nixbench
	Describe func(error) (exit int, cause error) // returns the exit code and the error that the record of a run contains
}

// NodeFilter says which of the nodes that the user has selected a command uses.
type NodeFilter int

const (
	NoNodes       NodeFilter = iota // the command uses no nodes, so the hive may have none; Pick selects a node nevertheless
	SelectedNodes                   // all
	RemoteNodes                     // the nodes that nixbench can connect to; a node with targetHost = null is only for apply-local
	DeployedNodes                   // like RemoteNodes, but the evaluation of the nodes reports broken deployment options
	BootedNodes                     // nodes whose machines nixbench boots
)

func (r Request) locate() (nixeval.Source, error) {
	switch {
	case r.File != "" && r.Flake != "":
		return nixeval.Source{}, failure.NewUsage("-f and --flake select two hives; use one of them")
	case r.File != "":
		return nixeval.ParseFileSource(r.File)
	case r.Flake != "":
		return nixeval.ParseFlakeSource(r.Flake)
	}
	wd, err := os.Getwd()
	if err != nil {
		return nixeval.Source{}, err
	}
	return nixeval.FindSource(wd)
}

// Evaluator returns an evaluator of the hive without the facts of its state folder.
func (r Request) Evaluator() (*nixeval.Evaluator, error) {
	var err error
	if r.Plan.NeedsNoHive() {
		r.Eval.Evaluated, r.Eval.NixOptions = r.Plan.Evaluated, append(r.Plan.NixOptions(), r.Eval.NixOptions...)
	}
	if r.Plan != nil && r.Plan.Elsewhere {
		r.Eval.Source.File, err = filepath.Abs(r.Plan.File)
		r.Eval.Source.Dir = filepath.Dir(r.Eval.Source.File)
		r.Eval.Source.Copied = true // do not use a state folder beside the plan: whoever has brought the plan may have made it
	} else {
		r.Eval.Source, err = r.locate()
	}
	if err != nil {
		return nil, err
	}
	if r.Eval.Facts != "" {
		if _, err := facts.Load(r.Eval.Facts); err != nil {
			return nil, failure.NewUsage("--facts: %w", err)
		}
	}
	return nixeval.New(r.Eval), nil
}

// OpenEvaluator returns an evaluator with the facts (such as addresses) of booted machines, for commands that need no survey of
// the hive. It surveys the hive only if one of the hive's state folders contains facts.
func OpenEvaluator(ctx context.Context, r Request) (*nixeval.Evaluator, error) {
	r.Eval.Send = r.Send
	e, err := r.Evaluator()
	if err != nil {
		return nil, err
	}
	all, err := state.Locate(e.Source, "*")
	if err != nil {
		return nil, err
	}
	if found, _ := filepath.Glob(all.Facts()); len(found) == 0 || e.Facts != "" {
		return e, nil
	}
	s, err := Open(ctx, r)
	if err != nil {
		return nil, err
	}
	s.Close()
	return s.Eval, nil
}

// NodeNamed returns a function for Request.Pick: it returns the node with this name, unless the node's deployment options are broken.
func NodeNamed(name string) func(*nixeval.Hive) (nixeval.Node, error) {
	return func(hive *nixeval.Hive) (nixeval.Node, error) {
		for _, n := range hive.Nodes {
			if n.Name == name {
				return n, CheckEvaluable(hive, n)
			}
		}
		return nixeval.Node{}, failure.WithHint(failure.NewUsage("there is no node %s in the hive", name), "nixbench eval lists the nodes")
	}
}

// CheckEvaluable returns an error if the deployment options of one of the nodes are broken.
func CheckEvaluable(hive *nixeval.Hive, nodes ...nixeval.Node) error {
	broken := map[string]*nixeval.NixError{}
	for _, n := range nodes {
		if err := hive.Broken[n.Unit]; err != nil {
			broken[n.Unit] = err
		}
	}
	if len(broken) > 0 {
		return &nixeval.EvalError{Units: broken}
	}
	return nil
}
