package inspect

import (
	"context"
	"errors"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Member is the state of a node in its cluster, as the cluster's engine reports it.
type Member struct {
	Ready    bool   `json:"ready"`
	Cordoned bool   `json:"cordoned"` // takes no new work
	Version  string `json:"version,omitempty"`
}

func (m Member) String() string {
	text := "Ready"
	if !m.Ready {
		text = "NotReady"
	}
	if m.Cordoned {
		text += ", cordoned"
	}
	return text
}

// membersTimeout is how long an engine may take to list its members.
const membersTimeout = 20 * time.Second

// UnknownError is returned if an engine does not answer, so that the state of its members is unknown.
type UnknownError struct {
	Err  error
	Seen string // what is wrong on the nodes on which the engine depends; may be empty
}

func (e *UnknownError) Error() string {
	text := "the state of the members is unknown: " + e.Err.Error()
	if e.Seen != "" {
		text += "\n" + e.Seen
	}
	return text
}

// Kind implements [failure.Classified].
func (e *UnknownError) Kind() failure.Kind { return failure.Cluster }
func (e *UnknownError) Unwrap() error      { return e.Err }

// Hint returns what to do about the error.
func (e *UnknownError) Hint() string {
	return "nixbench apply starts units of the cluster that are stopped"
}

// Members returns the members of the engines' clusters, by node name. The error joins one [UnknownError] for each engine that
// does not answer.
func Members(ctx context.Context, engines []engine.Engine) (map[string]*Member, error) {
	out := map[string]*Member{}
	var errs []error
	for _, e := range engines {
		one, cancel := context.WithTimeout(ctx, membersTimeout)
		members, err := e.Members(one)
		cancel()
		if err != nil {
			unknown := &UnknownError{Err: err}
			if look := engine.LookAt(e); look != nil && ctx.Err() == nil {
				unknown.Seen, _ = look(ctx)
			}
			errs = append(errs, unknown)
		}
		for node, s := range members {
			out[node] = &Member{Ready: s.Ready, Cordoned: s.Cordoned, Version: s.Version}
		}
	}
	return out, errors.Join(errs...)
}
