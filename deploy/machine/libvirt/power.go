package libvirt

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// ShutDown implements [provider.Power]. A crashed machine cannot shut down, so it is stopped.
func (h *Hypervisor) ShutDown(ctx context.Context, c provider.Cluster, node string, force bool) error {
	const op = "shut down"
	err := h.runOperation(ctx, func(s *session) error {
		d, err := s.findOwnMachine(c, node, op)
		if err != nil || d == nil {
			return err
		}
		defer d.free()
		if force {
			return s.destroyDomain(d.d)
		}
		return s.askToShutDown(d.d, math.MaxInt64)
	})
	return h.wrapError(node, op, err, "")
}

// Start implements [provider.Power].
func (h *Hypervisor) Start(ctx context.Context, c provider.Cluster, node string) error {
	const op = "start"
	err := h.runOperation(ctx, func(s *session) error {
		d, err := s.findOwnMachine(c, node, op)
		if err != nil {
			return err
		}
		if d == nil {
			return errors.New("there is no such machine")
		}
		defer d.free()
		return s.startDomain(node, d.d)
	})
	return h.wrapError(node, op, err, "nixbench apply creates missing machines and networks, and starts the machines")
}

// findOwnMachine returns the machine of a node, or nil if there is none. It fails if the domain with the machine's name
// does not belong to the cluster.
func (s *session) findOwnMachine(c provider.Cluster, node, op string) (*domain, error) {
	d, err := s.findMachine(c, node)
	if err != nil || d == nil {
		return nil, err
	}
	if !d.isMachineOfNode(c, node) {
		defer d.free()
		return nil, s.h.wrapError(node, op, fmt.Errorf("domain %s: %w", d.Name, provider.ErrForeign), "choose another cluster.name, or rename that domain")
	}
	return d, nil
}
