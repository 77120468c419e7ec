package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
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

// Members returns the members of the engines' clusters, by node name. The error joins those of the engines that do not
// answer.
func Members(ctx context.Context, engines []engine.Engine) (map[string]*Member, error) {
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	out := map[string]*Member{}
	var errs []error
	for _, e := range engines {
		members, err := e.Members(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("the state of the members is unknown: %w", err))
		}
		for node, s := range members {
			out[node] = &Member{Ready: s.Ready, Cordoned: s.Cordoned, Version: s.Version}
		}
	}
	return out, errors.Join(errs...)
}
