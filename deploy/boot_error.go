package deploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/provision"
)

// creationError is for a machine that could not be made.
func (m *machineTask) creationError(err error) error {
	return &BootError{Node: m.change.Node, Err: err}
}

// notReadyError is for one that was started and did not come up; its console may say why.
func (m *machineTask) notReadyError(ctx context.Context, err error) error {
	e := &BootError{Node: m.change.Node, Started: true, Within: m.bootLimit(), Err: err}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	host := m.plan.providers[m.change.Hypervisor]
	if d, ok := host.(provision.Discoverer); ok && m.plan.Network.Mode.Ours() {
		all, _ := d.Addresses(ctx, m.plan.Cluster, m.change.Node) // only to say more
		if a := preferredAddress(all); a.IsValid() && a != m.change.Address && len(all) == 1 {
			e.Err = fmt.Errorf("%w; it has got the address %s, although %s is reserved for it", e.Err, a, m.change.Address)
		}
	}
	if inventory, err := host.Survey(ctx, m.plan.Cluster, m.plan.Network); err == nil {
		for _, f := range inventory.Machines {
			if f.Node == m.change.Node && f.State == provision.Off {
				e.Err = fmt.Errorf("%w; it is off: its system has ended by itself", e.Err)
			}
		}
	}
	if c, ok := host.(provision.Console); ok {
		e.Console, _ = c.ConsoleTail(ctx, m.plan.Cluster, m.change.Node, 4000) // a panic of the kernel takes 3000
	}
	return e
}

// BootError says that a node's machine could not be made, or did not come up.
type BootError struct {
	Node    string
	Started bool
	Within  time.Duration
	Console string // the end of what it printed
	Err     error
}

func (e *BootError) Error() string {
	text := strings.TrimPrefix(e.Err.Error(), e.Node+": ")
	text = strings.TrimPrefix(text, e.Node+", ")
	if e.Started {
		text = fmt.Sprintf("its machine was started, but is not ready (it has %s): %s", e.Within, text)
	}
	if tail := strings.TrimSpace(e.Console); tail != "" {
		text += "\nits console ends with:\n" + tail
	}
	return e.Node + ": " + text
}

func (e *BootError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *BootError) Hint() string {
	var helpful interface{ Hint() string }
	if errors.As(e.Err, &helpful) && helpful.Hint() != "" {
		return helpful.Hint()
	}
	if e.Started {
		return "the next apply goes on waiting; --boot-timeout gives it longer; nixbench destroy --on " + e.Node + " begins anew"
	}
	return ""
}
