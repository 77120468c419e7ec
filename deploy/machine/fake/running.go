package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

func (h *Hypervisor) Addresses(ctx context.Context, c provider.Cluster, node string) (all []netip.Addr, err error) {
	h.withDomain(c.MachineName(node), func(d *domain) {
		n := h.networks[d.network]
		if !d.isOwnedBy(c) || d.boot == 0 || n == nil {
			return
		}
		for _, l := range n.Leases {
			if l.MAC == d.spec.MAC {
				all = append(all, l.Address)
			}
		}
		for _, r := range n.Reservations {
			if r.MAC == d.spec.MAC && !slices.Contains(all, r.Address) {
				all = append(all, r.Address)
			}
		}
	})
	return all, ctx.Err()
}

func (h *Hypervisor) ConsoleTail(ctx context.Context, c provider.Cluster, node string, max int) (tail string, err error) {
	h.withDomain(c.MachineName(node), func(d *domain) {
		if d.isOwnedBy(c) {
			tail = d.console[len(d.console)-min(max, len(d.console)):]
		}
	})
	return tail, ctx.Err()
}

func (h *Hypervisor) AttachConsole(ctx context.Context, c provider.Cluster, node string, _ <-chan []byte, out io.Writer) error {
	text, err := h.ConsoleTail(ctx, c, node, 1<<20)
	if err == nil {
		_, err = io.WriteString(out, text)
	}
	return err
}

func (h *Hypervisor) States(_ context.Context, c provider.Cluster, nodes []string) (map[string]provider.State, error) {
	states := map[string]provider.State{}
	for _, node := range nodes {
		h.withDomain(c.MachineName(node), func(d *domain) {
			if d.isOwnedBy(c) {
				states[node] = d.state()
			}
		})
	}
	return states, nil
}

func (h *Hypervisor) ShutDown(ctx context.Context, c provider.Cluster, node string, force bool) error {
	step := Step{Op: "power", Node: node, Name: "shut down"}
	d, err := h.findOwnMachine(c, step)
	if err != nil || d == nil || h.State(c.MachineName(node)) == provider.Off {
		return err
	}
	var refusal error
	var hangs bool
	h.do(func() { refusal, hangs = h.hangs[c.MachineName(node)] })
	if hangs && !force {
		if refusal == nil {
			<-ctx.Done()
			refusal = context.Cause(ctx)
		}
		return h.fail(step, refusal)
	}
	return h.runStep(ctx, step, d.stop)
}

func (h *Hypervisor) Start(ctx context.Context, c provider.Cluster, node string) error {
	step := Step{Op: "power", Node: node, Name: "start"}
	d, err := h.findOwnMachine(c, step)
	if err != nil {
		return err
	}
	if d == nil {
		return h.fail(step, errors.New("there is no such machine"))
	}
	return h.startDomain(ctx, func(string) Step { return step }, c, node)
}

func (h *Hypervisor) findOwnMachine(c provider.Cluster, step Step) (d *domain, err error) {
	machine := c.MachineName(step.Node)
	h.withDomain(machine, func(found *domain) {
		if d = found; !d.isOwnedBy(c) {
			d, err = nil, h.fail(step, fmt.Errorf("domain %s: %w", machine, provider.ErrForeign))
		}
	})
	return d, err
}

// change is a step of an operation.
type change struct {
	name   string
	needed bool
	do     func()
}

// runSteps makes the changes that are needed, until one fails. The step has the other fields of their steps.
func (h *Hypervisor) runSteps(ctx context.Context, s Step, all ...change) error {
	for _, c := range all {
		if s.Name = c.name; !c.needed {
			continue
		}
		if err := h.runStep(ctx, s, c.do); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// runStep records the step, calls onStep without the lock, and makes the change by calling change with the lock held.
// If Cut interrupts the operation, or onStep returns an error, runStep does not call change, and returns an error.
func (h *Hypervisor) runStep(ctx context.Context, s Step, change func()) error {
	var onStep func(context.Context, Step) error
	err := ctx.Err()
	h.do(func() {
		onStep = h.onStep
		if s.Op == "survey" {
			return
		}
		h.log = append(h.log, s)
		switch {
		case h.cut > 1:
			h.cut--
		case h.cut == 1 && err == nil: // also interrupts all later changes, until Cut(0)
			err = errors.New("cut off")
		}
	})
	if err == nil && onStep != nil {
		err = onStep(ctx, s)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		h.do(change)
	}
	if err != nil {
		return h.fail(s, err)
	}
	return nil
}

func (h *Hypervisor) fail(s Step, err error) error {
	return &provider.Error{Hypervisor: h.Name, Node: s.Node, Op: s.Op + ": " + s.Name, Err: err, Fix: "change the fake"}
}
