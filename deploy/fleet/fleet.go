package fleet

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/hostkeys"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Fleet holds one SSH connection to each node of a run. A connection is made when it is first used.
type Fleet struct {
	hive    *nixeval.Hive
	options Options

	// resolving limits how many `ssh -G` processes run at once, because a thousand of them at once would time out.
	resolving chan struct{}

	mu    sync.Mutex
	hosts map[string]*remote.Host
}

type Options struct {
	remote.Options
	Programs  bool   // deployment.sshOptions may run programs on this computer, such as ProxyCommand
	SSHConfig string // the file that is read in place of ~/.ssh/config; sshOptions of a node may name another one
	// MachineOf returns the recorded machine of a node, or the zero value if none is recorded, and the recorded cluster. It is called only
	// when the connection to the node is made, so that the connection uses the machine's current address and host key. Nil: there are none.
	MachineOf func(node string) (state.Machine, *state.Cluster, error)
	ClientKey string                                                            // path of the private key with which nixbench logs in to machines that it has booted
	Resolve   func(context.Context, sshconfig.Target) (sshconfig.Config, error) // nil: sshconfig.Resolve
}

// New returns a fleet of the hive's nodes. It does not connect to them. The caller closes the fleet at the end of the run.
func New(hive *nixeval.Hive, o Options) *Fleet {
	if o.KnownHosts == nil {
		o.KnownHosts = &hostkeys.KnownHosts{}
	}
	if o.Resolve == nil {
		o.Resolve = sshconfig.Resolve
	}
	if o.MachineOf == nil {
		o.MachineOf = func(string) (state.Machine, *state.Cluster, error) { return state.Machine{}, nil, nil }
	}
	return &Fleet{hive: hive, options: o, resolving: make(chan struct{}, 2*runtime.NumCPU()), hosts: map[string]*remote.Host{}}
}

// NewLocal returns a fleet of one node, which is this computer. Commands run as the current user. If escalation is set (such as
// sudo), this command runs them as root.
func NewLocal(hive *nixeval.Hive, n nixeval.Node, escalation []string, o remote.Options) (*Fleet, error) {
	h, err := remote.NewLocal(n.Name, escalation, o)
	if err != nil {
		return nil, err
	}
	f := New(hive, Options{Options: o})
	f.hosts[n.Name] = h
	return f, nil
}

// Host returns the connection to a node. It logs in to the node when the connection is first used.
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
	cfg, err := f.options.Resolve(ctx, target)
	wait.End()
	<-f.resolving
	if err != nil {
		return nil, err // the error names the node
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hosts[n.Name] == nil {
		options := f.options.Options
		if len(target.HostKeys) == 0 { // nixbench has not booted the node's machine, so there is no hypervisor to ask about the machine
			options.Down = nil
		}
		f.hosts[n.Name] = remote.NewHost(cfg, options)
	}
	return f.hosts[n.Name], nil
}

func (f *Fleet) Hive() *nixeval.Hive   { return f.hive }
func (f *Fleet) EventSink() event.Sink { return f.options.Send }

// Drop closes the connection to a node, after the node's machine was recreated or restarted.
func (f *Fleet) Drop(node string) {
	f.mu.Lock()
	h := f.hosts[node]
	delete(f.hosts, node)
	f.mu.Unlock()
	if h != nil {
		_ = h.Close() // the connection is not used any more, so an error does not matter
	}
}

// Target returns the address, the user and the SSH options of a node. For a machine that nixbench has booted, they come from the
// machine in the state. For any other node, they come from the node's deployment options in the hive.
func (f *Fleet) Target(n nixeval.Node) (sshconfig.Target, error) {
	var d nixeval.Deployment
	if u := f.hive.Unit(n.Unit); u != nil { // nil if the hive no longer has the role of the machine
		d = u.Deployment
	}
	if !f.options.Programs {
		if err := sshconfig.CheckPrograms(d.SSHOptions); err != nil {
			return sshconfig.Target{}, failure.On(n.Name, failure.WithHint(failure.WithKind(failure.Usage, fmt.Errorf("deployment.sshOptions: %w", err)),
				"move it to your ~/.ssh/config, or use --allow-ssh-programs if you trust the hive"))
		}
	}
	if len(d.TargetHosts) == 0 && n.Role != "" {
		return f.bootedTarget(n, d)
	}
	if len(d.TargetHosts) == 0 {
		return sshconfig.Target{}, NewNoHostError(n, false)
	}
	var config []string
	if f.options.SSHConfig != "" {
		config = []string{"-F", f.options.SSHConfig}
	}
	return sshconfig.Target{
		Name: n.Name, Host: d.TargetHosts[0], Fallbacks: d.TargetHosts[1:], Port: d.TargetPort, User: d.TargetUser,
		SSHOptions: slices.Concat(config, d.SSHOptions), Escalation: d.PrivilegeEscalationCommand,
	}, nil
}

// AnsweringTarget returns the target of a node. If deployment.targetHost has several hosts, it logs in to find out which one answers.
func (f *Fleet) AnsweringTarget(ctx context.Context, n nixeval.Node) (sshconfig.Target, error) {
	target, err := f.Target(n)
	if err != nil || len(target.Fallbacks) == 0 {
		return target, err
	}
	host, err := f.Host(ctx, n)
	if err != nil {
		return target, err
	}
	if _, err := host.Conn(ctx); err != nil {
		return target, err
	}
	target.Host, target.Fallbacks = host.Config().Alias, nil
	return target, nil
}

// bootedTarget returns the target of a node whose machine nixbench has booted. A connection to this target accepts only the host
// key that the state contains for the machine, and does not read the user's SSH configuration.
func (f *Fleet) bootedTarget(n nixeval.Node, d nixeval.Deployment) (sshconfig.Target, error) {
	m, cluster, err := f.options.MachineOf(n.Name)
	switch {
	case err != nil:
		return sshconfig.Target{}, failure.On(n.Name, err)
	case m.Created == nil:
		return sshconfig.Target{}, NewNoHostError(n, false)
	case !m.Address.IsValid():
		return sshconfig.Target{}, NewNoHostError(n, true)
	}
	user := "root"
	if d.TargetUser != nil {
		user = *d.TargetUser
	}
	return sshconfig.Target{
		Name: n.Name, Host: m.Address.String(), Port: d.TargetPort, User: &user,
		SSHOptions: d.SSHOptions, Escalation: d.PrivilegeEscalationCommand,
		IdentityFiles: []string{f.options.ClientKey}, HostKeys: []string{m.HostKey}, Jump: jumpHostOf(m, cluster),
	}, nil
}

// jumpHostOf returns the hypervisor's host if the machine can be reached only through this host: nixbench reaches the host by SSH,
// and the machine is on a network of the host that nixbench manages. Otherwise jumpHostOf returns an empty string.
func jumpHostOf(m state.Machine, c *state.Cluster) string {
	if c == nil || !c.Network.Mode.Ours() {
		return ""
	}
	u, err := url.Parse(c.Hypervisors[m.Hypervisor].URI)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	if _, transport, _ := strings.Cut(u.Scheme, "+"); !slices.Contains([]string{"ssh", "libssh", "libssh2"}, transport) {
		return ""
	}
	if name := u.User.Username(); name != "" {
		return name + "@" + u.Host
	}
	return u.Host
}

func (f *Fleet) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.hosts {
		_ = h.Close() // the connection is not used any more, so an error does not matter
	}
}

// maxAnswer is the maximum size of the output that Run returns. The largest answer is the list of nodes and pods in JSON: for a
// cluster of a thousand machines it has about 20 MiB.
const maxAnswer = 32 << 20

// Run runs a command as root on the named node of the fleet.
func (f *Fleet) Run(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
	h, err := f.Host(ctx, f.nodeByName(node))
	if err != nil {
		return nil, err
	}
	conn, err := h.Conn(ctx)
	if err != nil {
		return nil, err
	}
	until, _ := ctx.Deadline()
	wait := f.options.Send.Wait(event.Event{Node: node, Text: "a command: " + programOf(argv), Until: until})
	defer wait.End()
	return conn.Output(ctx, remote.Cmd{Argv: argv, Stdin: stdin, Sudo: true, MaxOutput: maxAnswer})
}

// programOf returns the name of the program in argv, for messages. For `env NAME=VALUE PROGRAM …` it returns PROGRAM and not env.
func programOf(argv []string) string {
	for len(argv) > 1 && (argv[0] == "env" || strings.Contains(argv[0], "=")) {
		argv = argv[1:]
	}
	return path.Base(argv[0])
}

// nodeByName returns the node of the hive with this name. If the hive no longer has the node, it returns a node with the role of
// the machine in the state. The unit of such a node in the evaluation has the name of the role.
func (f *Fleet) nodeByName(name string) nixeval.Node {
	for _, n := range f.hive.Nodes {
		if n.Name == name {
			return n
		}
	}
	m, _, _ := f.options.MachineOf(name) // the error is ignored here, because Target reports it later
	return nixeval.Node{Name: name, Role: m.Role, Unit: m.Role}
}
