package libvirt

import (
	"context"
	"errors"
	"math"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// States implements [provider.Provider]. It makes two calls of libvirt for each node, and reads no XML.
func (h *Hypervisor) States(ctx context.Context, c provider.Cluster, nodes []string) (map[string]provider.State, error) {
	return query(ctx, h, "", "observe the machines", "", func(s *session) (map[string]provider.State, error) {
		states := map[string]provider.State{}
		for _, node := range nodes {
			d, err := s.conn.LookupDomainByUUIDString(domainUUID(c, node))
			if err == nil {
				s.freeAtEnd(d)
				states[node], err = stateOf(d)
			}
			if isNotFound(err) {
				delete(states, node)
			} else if err != nil {
				return nil, err
			}
		}
		return states, nil
	})
}

// ShutDown implements [provider.Provider]. A crashed machine cannot shut down, so ShutDown stops it at once.
func (h *Hypervisor) ShutDown(ctx context.Context, c provider.Cluster, node string, force bool) error {
	const op = "shut down"
	return h.execute(ctx, node, op, "", func(s *session) error {
		d, err := s.findOwnMachine(c, node, op)
		switch {
		case err != nil || d == nil:
			return err
		case force:
			return d.destroy()
		}
		return d.askToShutDown(math.MaxInt64)
	})
}

func (h *Hypervisor) Start(ctx context.Context, c provider.Cluster, node string) error {
	const op = "start"
	const fix = "nixbench apply creates missing machines and networks, and starts the machines"
	return h.execute(ctx, node, op, fix, func(s *session) error {
		d, err := s.findOwnMachine(c, node, op)
		if err == nil && d == nil {
			err = errors.New("there is no such machine")
		}
		if err != nil {
			return err
		}
		return d.startOrResume(node)
	})
}
