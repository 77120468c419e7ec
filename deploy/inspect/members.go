package inspect

import (
	"context"
	"errors"
	"fmt"
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

// NewUnknownError returns the error for an engine that does not answer, so that the state of its members is unknown. seen is what is
// wrong on the nodes on which the engine depends; it may be empty.
func NewUnknownError(err error, seen string) error {
	err = fmt.Errorf("the state of the members is unknown: %w", err)
	if seen != "" {
		err = fmt.Errorf("%w\n%s", err, seen)
	}
	return failure.WithHint(failure.WithKind(failure.Cluster, err), "nixbench apply starts units of the cluster that are stopped")
}

// Members returns the members of the engines' clusters, by node name. The error joins one error of [NewUnknownError] for each engine that
// does not answer.
func Members(ctx context.Context, engines []engine.Engine) (map[string]*Member, error) {
	out := map[string]*Member{}
	var errs []error
	for _, e := range engines {
		one, cancel := context.WithTimeout(ctx, membersTimeout)
		members, err := e.Members(one)
		cancel()
		if err != nil {
			seen := ""
			if ctx.Err() == nil {
				seen, _ = engine.LookAt(e)(ctx)
			}
			errs = append(errs, NewUnknownError(err, seen))
		}
		for node, s := range members {
			out[node] = &Member{Ready: s.Ready, Cordoned: s.Cordoned, Version: s.Version}
		}
	}
	return out, errors.Join(errs...)
}
