package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// boots are the machines of a run, each on its own way to being ready.
type boots struct {
	g         *ground
	nodes     map[string]*boot
	addressed sync.WaitGroup     // for those whose addresses have to be found out
	all       sync.WaitGroup     // and what is told about them
	giveUp    context.CancelFunc // ends waiting for what was started
}

type boot struct {
	over chan struct{}
	err  error
}

// wait waits until the node's machine is ready. A node without one need not.
func (b *boots) wait(node string) error {
	if b == nil || b.nodes[node] == nil {
		return nil
	}
	<-b.nodes[node].over
	return b.nodes[node].err
}

// end waits for what is under way.
func (b *boots) end() {
	if b == nil {
		return
	}
	b.all.Wait()
	b.giveUp()
	b.g.close()
}

// errors are those of machines so far.
func (b *boots) errors() error {
	var errs []error
	for _, c := range b.g.Changes {
		if one := b.nodes[c.Node]; one != nil {
			select {
			case <-one.over:
				errs = append(errs, one.err)
			default:
			}
		}
	}
	return errors.Join(errs...)
}

// start begins to make and start machines, and returns.
func (r *run) start(ctx context.Context, g *ground, client state.Key) *boots {
	b := &boots{g: g, nodes: map[string]*boot{}}
	var waiting context.Context
	waiting, b.giveUp = context.WithCancel(ctx)
	f := r.footing(ctx, g)
	workers := r.Parallel
	if workers <= 0 {
		workers = len(g.Changes) + 1
	}
	slots := make(chan struct{}, workers)
	counts := map[provision.Action]int{}
	var leaders sync.WaitGroup
	var all []*booting
	for _, c := range g.Changes {
		if c.Action == provision.Remove {
			continue
		}
		counts[c.Action]++
		one := &boot{over: make(chan struct{})}
		b.nodes[c.Node] = one
		if !g.Network.Mode.Ours() {
			b.addressed.Add(1)
		}
		m := &booting{run: r, g: g, f: f, c: c, client: client, slots: slots, turn: leaders.Wait, made: func() {}, addressed: sync.OnceFunc(func() {
			if !g.Network.Mode.Ours() {
				b.addressed.Done()
			}
		})}
		if r.leads(c) {
			leaders.Add(1)
			m.turn, m.made = func() {}, sync.OnceFunc(leaders.Done)
		}
		all = append(all, m)
	}
	for _, m := range all {
		one := b.nodes[m.c.Node]
		b.all.Go(func() {
			one.err = m.through(ctx, waiting)
			m.made()
			close(one.over) // first, so that who waits for addresses sees the error
			m.addressed()
		})
	}
	b.all.Go(f.images)
	r.tellWhenBooted(b, counts)
	return b
}

// leads tells whether the node is where the others find the cluster's API. They wait for what
// is set up there, and it would wait for their disks.
func (r *run) leads(c provision.Change) bool {
	cluster := r.hive.Cluster
	return cluster != nil && cluster.Endpoint != nil && cluster.Endpoint.Role != nil && *cluster.Endpoint.Role == c.Role
}

// tellWhenBooted ends the phase when the last machine is ready, or is not.
func (r *run) tellWhenBooted(b *boots, counts map[provision.Action]int) {
	b.all.Go(func() {
		for _, one := range b.nodes {
			<-one.over
		}
		failed := 0
		for _, one := range b.nodes {
			if one.err != nil {
				failed++
			}
		}
		text := countActions(counts)
		if failed > 0 {
			text = fmt.Sprintf("%d of %s not ready", failed, Count(len(b.nodes), "machine"))
		}
		r.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Provision, Total: len(b.nodes), Failed: failed > 0, Text: text})
	})
}

// countActions is `2 created, 1 kept`.
func countActions(counts map[provision.Action]int) string {
	var parts []string
	for _, a := range []struct {
		action provision.Action
		done   string
	}{
		{provision.Create, "created"}, {provision.Finish, "finished"}, {provision.Recreate, "recreated"},
		{provision.Start, "started"}, {provision.Restart, "restarted"}, {provision.Keep, "kept"},
	} {
		if n := counts[a.action]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, a.done))
		}
	}
	if len(parts) == 0 {
		return "no machines"
	}
	return strings.Join(parts, ", ")
}

// booting is one machine on its way.
type booting struct {
	*run
	g         *ground
	f         *footing
	c         provision.Change
	client    state.Key
	slots     chan struct{} // so many machines are made at once; waiting for them costs nothing
	turn      func()        // waits for those that are to be made before
	made      func()        // nobody need wait for this one any more
	addressed func()        // the machine's address is known, or will not be
}

// through brings the machine to where its node can be deployed. waiting ends when nobody cares any
// more whether it becomes ready; what is being made is finished all the same.
func (m *booting) through(ctx, waiting context.Context) error {
	node := m.c.Node
	fresh := m.Store.State().Unready(node)
	if err := m.f.ready(m.c); err != nil {
		return m.failed(err)
	}
	runs := m.c.Runs()
	if runs && !fresh && m.g.Network.Mode.Ours() {
		return nil
	}
	if !runs || fresh {
		m.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Boot, Node: node, Text: m.c.String()})
	}
	begin := time.Now()
	err := m.bring(ctx, waiting, runs, fresh)
	if !runs || fresh {
		text := ""
		if err == nil {
			text = fmt.Sprintf("ready after %s", time.Since(begin).Round(100*time.Millisecond))
		}
		m.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Boot, Node: node, Text: text, Failed: err != nil})
	}
	return err
}

func (m *booting) bring(ctx, waiting context.Context, runs, fresh bool) error {
	if !runs {
		m.turn()
		if err := m.make(ctx); err != nil {
			return m.failed(err)
		}
	}
	m.made()
	limit, cancel := context.WithTimeout(waiting, m.patience())
	defer cancel()
	if !m.g.Network.Mode.Ours() {
		if err := m.discover(limit, runs && !fresh); err != nil {
			return m.unready(ctx, err)
		}
		m.addressed()
	}
	if runs && !fresh {
		return nil
	}
	if err := m.responds(limit); err != nil {
		return m.unready(ctx, err)
	}
	return m.Store.Update(func(s *state.State) error { s.MachineReady(m.c.Node); return nil })
}

// patience is how long a machine may take from its start.
func (m *booting) patience() time.Duration {
	switch {
	case m.BootTimeout > 0:
		return m.BootTimeout
	case m.g.sites[m.c.Hypervisor].Emulated:
		return 10 * time.Minute
	}
	return 5 * time.Minute
}

// make makes the machine, or starts it. The state knows of it before it is there.
func (m *booting) make(ctx context.Context) error {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	host := m.g.hosts[m.c.Hypervisor]
	image, err := m.f.imageOf(m.c)
	if err != nil {
		return err
	}
	spec := m.c.Spec(image, provision.Identity{})
	if spec.Identity, err = m.identity(spec); err != nil {
		return err
	}
	node := m.c.Node
	if err := m.Store.Update(func(s *state.State) error {
		s.Begin(state.Intent{Run: m.Record.ID(), Node: node, Step: state.MakeMachine, Path: string(m.c.Action), Since: time.Now().UTC()})
		if m.c.NeedsImage() {
			s.Making(node, m.c.Hypervisor, imageState(spec.Image))
		}
		return nil
	}); err != nil {
		return err
	}
	if m.c.Action == provision.Recreate {
		if err := host.Remove(ctx, m.g.Cluster, node); err != nil {
			return located(err, m.c.Hypervisor, "remove "+node)
		}
		if err := m.f.reserve[m.c.Hypervisor](); err != nil { // which went with it
			return err
		}
	}
	if err := host.Ensure(ctx, m.g.Cluster, m.g.Network, spec); err != nil {
		return located(err, m.c.Hypervisor, string(m.c.Action)+" "+node)
	}
	if err := m.Store.Update(func(s *state.State) error { s.Made(node, time.Now().UTC()); return nil }); err != nil {
		return err
	}
	m.know()
	return nil
}

// know tells the fleet what the state knows by now.
func (m *booting) know() { m.Fleet.Know(m.Machines.Dir.ClientKey(), m.Store.State()) }

func imageState(i provision.Image) state.Image {
	return state.Image{Hash: i.Hash, Format: string(i.Format), Kernel: i.Kernel, Initrd: i.Initrd, Cmdline: i.Cmdline}
}

// discover finds out the machine's address. One that runs for long may keep the
// one that we know, if nobody tells.
func (m *booting) discover(ctx context.Context, longAgo bool) error {
	d, ok := m.g.hosts[m.c.Hypervisor].(provision.Discoverer)
	if !ok {
		return &provision.Error{Hypervisor: m.c.Hypervisor, Node: m.c.Node, Op: "find its address", Err: errors.New("this kind of hypervisor cannot tell")}
	}
	known := m.Store.State().Machines[m.c.Node].Address
	for {
		all, err := d.Addresses(ctx, m.g.Cluster, m.c.Node)
		if a := reachable(all); a.IsValid() {
			return m.found(a)
		}
		if longAgo && known.IsValid() && ctx.Err() == nil {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return located(err, m.c.Hypervisor, "find the address of "+m.c.Node)
		}
		if err := pause(ctx, time.Second); err != nil {
			err = fmt.Errorf("it has got no address on network %s, as far as the hypervisor knows: %w", m.g.Network.Name, err)
			return &provision.Error{Hypervisor: m.c.Hypervisor, Node: m.c.Node, Op: "find its address", Err: err, Fix: m.unseen()}
		}
	}
}

// unseen says how a machine's address could be seen.
func (m *booting) unseen() string {
	if m.g.Network.Mode != provision.Bridge {
		return ""
	}
	return "see that its system asks for an address by DHCP on bridge " + m.g.Network.Bridge +
		"; a virtual machine with a guest agent tells it (services.qemuGuest.enable = true), others are seen where they talk to the hypervisor or to this machine"
}

// reachable prefers IPv4, since it needs no zone.
func reachable(all []netip.Addr) netip.Addr {
	var best netip.Addr
	for _, a := range all {
		if a.IsLoopback() || a.IsLinkLocalUnicast() || !a.IsValid() {
			continue
		}
		if !best.IsValid() || a.Is4() && !best.Is4() {
			best = a
		}
	}
	return best
}

func (m *booting) found(a netip.Addr) error {
	if m.Store.State().Machines[m.c.Node].Address != a {
		if err := m.Store.Update(func(s *state.State) error {
			machine := s.Machines[m.c.Node]
			machine.Address = a
			s.Machines[m.c.Node] = machine
			return nil
		}); err != nil {
			return err
		}
	}
	m.know()
	return nil
}

// responds waits until the machine lets us in, under its pinned key, and its system has
// come up. Units that failed are no reason to wait: a deploy may be what mends them.
func (m *booting) responds(ctx context.Context) error {
	h, err := m.Fleet.Host(ctx, nixeval.Node{Name: m.c.Node, Role: m.c.Role, Unit: m.unit()})
	if err != nil {
		return err
	}
	var last error
	for {
		if _, err := h.WaitReachable(ctx); err != nil {
			// cloud-init brings keys late: until then the image's own are shown.
			if !m.late() || ctx.Err() != nil {
				return latest(ctx, err, last)
			}
			last = err
		} else {
			word, err := m.word(ctx, h)
			if err == nil && word != "starting" && word != "initializing" {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("its system is still %s", word)
			}
			last = err
			m.Send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Boot, Node: m.c.Node, Text: err.Error()})
		}
		if err := pause(ctx, 300*time.Millisecond); err != nil {
			return latest(ctx, err, last)
		}
	}
}

// latest prefers what was seen last to a deadline.
func latest(ctx context.Context, err, last error) error {
	if ctx.Err() != nil && last != nil {
		return last
	}
	return err
}

func (m *booting) late() bool {
	return m.hive.Roles[m.c.Role].Identity == string(provision.CloudInit)
}

func (m *booting) unit() string {
	for _, n := range m.hive.Nodes {
		if n.Name == m.c.Node {
			return n.Unit
		}
	}
	return m.c.Node
}

// word is systemd's for the state of the system.
func (m *booting) word(ctx context.Context, h *remote.Host) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var out bytes.Buffer
	err := h.Run(ctx, remote.Cmd{Argv: []string{"systemctl", "is-system-running"}, Stdout: &out})
	var exit *remote.RunError
	if err != nil && !errors.As(err, &exit) {
		return "", err
	}
	return strings.TrimSpace(out.String()), nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failed is for a machine that could not be made.
func (m *booting) failed(err error) error {
	return &BootError{Node: m.c.Node, Err: err}
}

// unready is for one that was started and did not come up; its console may say why.
func (m *booting) unready(ctx context.Context, err error) error {
	e := &BootError{Node: m.c.Node, Started: true, Within: m.patience(), Err: err}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	host := m.g.hosts[m.c.Hypervisor]
	if d, ok := host.(provision.Discoverer); ok && m.g.Network.Mode.Ours() {
		all, _ := d.Addresses(ctx, m.g.Cluster, m.c.Node) // only to say more
		if a := reachable(all); a.IsValid() && a != m.c.Address && len(all) == 1 {
			e.Err = fmt.Errorf("%w; it has got the address %s, although %s is reserved for it", e.Err, a, m.c.Address)
		}
	}
	if site, err := host.Survey(ctx, m.g.Cluster, m.g.Network); err == nil {
		for _, f := range site.Machines {
			if f.Node == m.c.Node && f.State == provision.Off {
				e.Err = fmt.Errorf("%w; it is off: its system has ended by itself", e.Err)
			}
		}
	}
	if c, ok := host.(provision.Console); ok {
		e.Console, _ = c.ConsoleTail(ctx, m.g.Cluster, m.c.Node, 4000) // a panic of the kernel takes 3000
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
