package deploy

import (
	"context"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Fleet holds one connection to each node of a run. A connection is made at its first use.
type Fleet struct {
	hive    *nixeval.Hive
	options remote.Options
	config  []string // the options of ssh that name its configuration file
	resolve func(context.Context, remote.Target) (remote.Config, error)

	// resolving limits the number of concurrent ssh -G: a thousand at once time out.
	resolving chan struct{}

	mu            sync.Mutex
	hosts         map[string]*remote.Host
	machines      map[string]state.Machine // machines that nixbench has booted
	cluster       *state.Cluster           // the cluster of these machines
	clientKeyFile string                   // the private key that logs in to these machines
	machinesErr   error                    // why the recorded machines cannot be read
}

// NewFleet prepares connections to the hive's nodes. Close it when the run is over.
func NewFleet(hive *nixeval.Hive, o remote.Options) *Fleet {
	if o.Keyring == nil {
		o.Keyring = &remote.Keyring{} // shared, so that a passphrase is asked for once and not once per node
	}
	if o.KnownHosts == nil {
		o.KnownHosts = &remote.KnownHosts{}
	}
	return &Fleet{hive: hive, options: o, resolve: remote.Resolve, resolving: make(chan struct{}, 2*runtime.NumCPU()), hosts: map[string]*remote.Host{}}
}

// Host returns the connection to a node. The connection dials at its first use.
func (f *Fleet) Host(ctx context.Context, n nixeval.Node) (*remote.Host, error) {
	f.mu.Lock()
	h := f.hosts[n.Name]
	f.mu.Unlock()
	if h != nil {
		return h, nil
	}
	target, err := f.Target(n)
	if err != nil {
		return nil, err
	}
	select {
	case f.resolving <- struct{}{}:
	case <-ctx.Done():
		return nil, failure.On(n.Name, context.Cause(ctx))
	}
	wait := f.options.Send.Wait(event.Event{Node: n.Name, Phase: event.Connect, Text: "ssh -G, which reads the SSH configuration"})
	cfg, err := f.resolve(ctx, target)
	wait.End()
	<-f.resolving
	if err != nil {
		return nil, err // the error names the node
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hosts[n.Name] == nil {
		f.hosts[n.Name] = remote.NewHost(cfg, f.options)
	}
	return f.hosts[n.Name], nil
}

// SetMachines sets the recorded machines, which nixbench has booted, and the file with the private
// key that logs in to them.
func (f *Fleet) SetMachines(key string, recorded *state.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clientKeyFile, f.machines, f.cluster = key, recorded.Machines, recorded.Cluster
}

// Drop closes the connection to a node. It is called after the node's machine was recreated or
// restarted.
func (f *Fleet) Drop(node string) {
	f.mu.Lock()
	h := f.hosts[node]
	delete(f.hosts, node)
	f.mu.Unlock()
	if h != nil {
		_ = h.Close() // the connection is not used any more, so an error does not matter
	}
}

// SetMachinesError sets the error that Target returns for every machine that nixbench boots. It is
// for a state that cannot be read.
func (f *Fleet) SetMachinesError(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.machinesErr = err
}

// Target returns how to reach a node: by the hive's deployment.targetHost, or for a machine that
// nixbench has booted by the recorded address.
func (f *Fleet) Target(n nixeval.Node) (remote.Target, error) {
	var d nixeval.Deployment
	if u := f.hive.Unit(n.Unit); u != nil { // the hive may no longer have the role of a machine
		d = u.Deployment
	}
	if d.TargetHost == nil && n.Role != "" {
		return f.bootedTarget(n, d)
	}
	if d.TargetHost == nil {
		return remote.Target{}, &NoHostError{Node: n}
	}
	return remote.Target{
		Name: n.Name, Host: *d.TargetHost, Port: d.TargetPort, User: d.TargetUser,
		SSHOptions: slices.Concat(f.config, d.SSHOptions), Escalation: d.PrivilegeEscalationCommand,
	}, nil
}

// SetSSHConfig sets the file to read in place of the user's OpenSSH configuration, for nodes with
// a deployment.targetHost. A node's own sshOptions may name another file.
func (f *Fleet) SetSSHConfig(file string) {
	f.config = []string{"-F", file}
}

// bootedTarget returns how to reach a machine that nixbench has booted. Only its pinned host key is
// accepted, and the user's SSH configuration is not read.
func (f *Fleet) bootedTarget(n nixeval.Node, d nixeval.Deployment) (remote.Target, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.machines[n.Name]
	switch {
	case f.machinesErr != nil:
		return remote.Target{}, failure.On(n.Name, f.machinesErr)
	case !ok || m.Created == nil:
		return remote.Target{}, &NoHostError{Node: n}
	case !m.Address.IsValid():
		return remote.Target{}, &NoHostError{Node: n, Booted: true}
	}
	user := "root"
	if d.TargetUser != nil {
		user = *d.TargetUser
	}
	return remote.Target{
		Name: n.Name, Host: m.Address.String(), Port: d.TargetPort, User: &user,
		SSHOptions: d.SSHOptions, Escalation: d.PrivilegeEscalationCommand,
		IdentityFiles: []string{f.clientKeyFile}, HostKeys: []string{m.HostKey}, Via: jumpHost(n.Name, m, f.cluster),
	}, nil
}

// jumpHost returns the hypervisor's host if the machine can be reached only through it: libvirt
// reaches that host by SSH, and the machine is on a network of that host that nixbench manages.
func jumpHost(node string, m state.Machine, c *state.Cluster) *remote.Target {
	if c == nil || !provision.Mode(c.Network.Mode).Ours() {
		return nil
	}
	u, err := url.Parse(c.Hypervisors[m.Hypervisor].URI)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	if _, transport, _ := strings.Cut(u.Scheme, "+"); !slices.Contains([]string{"ssh", "libssh", "libssh2"}, transport) {
		return nil
	}
	via := &remote.Target{Name: node, Host: u.Hostname()}
	if name := u.User.Username(); name != "" {
		via.User = &name
	}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		via.Port = &port
	}
	return via
}

// Handshakes returns the number of logins to a node so far.
func (f *Fleet) Handshakes(node string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.hosts[node]; h != nil {
		return h.Handshakes()
	}
	return 0
}

// Close ends all connections.
func (f *Fleet) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.hosts {
		_ = h.Close() // the connection is not used any more, so an error does not matter
	}
}

// NoHostError is a node without an address.
type NoHostError struct {
	Node   nixeval.Node
	Booted bool // its machine was created
}

// Hint returns what to do about the error.
func (e *NoHostError) Hint() string {
	if e.Node.Role != "" {
		return "nixbench apply boots it, or discovers its address"
	}
	return ""
}

func (e *NoHostError) Error() string { return failure.Message(e) }

// OnNode implements [failure.OnNode].
func (e *NoHostError) OnNode() (node, text string) {
	switch {
	case e.Booted:
		text = "the address of its machine is not known yet"
	case e.Node.Role != "":
		text = "its machine has not been booted yet, so it has no address"
	default:
		text = "deployment.targetHost is null, so it can only be deployed locally, with apply-local"
	}
	return e.Node.Name, text
}

// Kind implements [failure.Classified].
func (e *NoHostError) Kind() failure.Kind { return failure.Unreachable }

// Outcome is the result of Each for one node.
type Outcome[T any] struct {
	Node  nixeval.Node
	Value T
	Err   error
}

// Each runs f for every node, at most parallel of them at once (0: all). A failure of one
// node does not cancel or delay the others.
func Each[T any](ctx context.Context, nodes []nixeval.Node, parallel int, f func(context.Context, nixeval.Node) (T, error)) []Outcome[T] {
	return EachReady(ctx, nodes, nil, parallel, f)
}

// EachReady is Each, but f runs for a node only after the node's channel is closed. Until then
// the node does not count towards parallel.
func EachReady[T any](ctx context.Context, nodes []nixeval.Node, ready map[string]<-chan struct{}, parallel int, f func(context.Context, nixeval.Node) (T, error)) []Outcome[T] {
	out := make([]Outcome[T], len(nodes))
	if parallel <= 0 {
		parallel = max(1, len(nodes))
	}
	slots := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for i, n := range nodes {
		turn := ready[n.Name]
		if turn == nil {
			slots <- struct{}{} // nodes without a channel start in order
		}
		all.Go(func() {
			if turn != nil {
				select {
				case <-turn:
				case <-ctx.Done():
				}
				slots <- struct{}{}
			}
			defer func() { <-slots }()
			o := Outcome[T]{Node: n, Err: context.Cause(ctx)}
			if o.Err == nil {
				o.Value, o.Err = f(ctx, n)
			}
			out[i] = o
		})
	}
	all.Wait()
	return out
}
