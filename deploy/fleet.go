package deploy

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// Fleet is the nodes of a run: each has one connection, made when it is needed.
type Fleet struct {
	hive    *nixeval.Hive
	options remote.Options
	resolve func(context.Context, remote.Target) (remote.Config, error)

	// A thousand ssh -G at once take so long that some of them time out.
	resolving chan struct{}

	mu    sync.Mutex
	hosts map[string]*remote.Host
}

// NewFleet prepares connections to the hive's nodes. Close it when the run is over.
func NewFleet(hive *nixeval.Hive, o remote.Options) *Fleet {
	if o.Keyring == nil {
		o.Keyring = &remote.Keyring{} // a passphrase is asked for once, not once per node
	}
	if o.KnownHosts == nil {
		o.KnownHosts = &remote.KnownHosts{}
	}
	return &Fleet{hive: hive, options: o, resolve: remote.Resolve, resolving: make(chan struct{}, 2*runtime.NumCPU()), hosts: map[string]*remote.Host{}}
}

// Host is the connection to a node; it dials when it is used.
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
		return nil, fmt.Errorf("%s: %w", n.Name, context.Cause(ctx))
	}
	cfg, err := f.resolve(ctx, target)
	<-f.resolving
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hosts[n.Name] == nil {
		f.hosts[n.Name] = remote.NewHost(cfg, f.options)
	}
	return f.hosts[n.Name], nil
}

// Target is what the hive says about how to reach a node.
func (f *Fleet) Target(n nixeval.Node) (remote.Target, error) {
	d := f.hive.Unit(n.Unit).Deployment
	if d.TargetHost == nil {
		return remote.Target{}, &NoHostError{Node: n}
	}
	return remote.Target{
		Name: n.Name, Host: *d.TargetHost, Port: d.TargetPort, User: d.TargetUser,
		SSHOptions: d.SSHOptions, Escalation: d.PrivilegeEscalationCommand,
	}, nil
}

// Handshakes counts the logins of a node so far.
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
		_ = h.Close() // there is nothing left to be said on it
	}
}

// NoHostError says that a node has no address to be reached at.
type NoHostError struct{ Node nixeval.Node }

func (e *NoHostError) Error() string {
	if e.Node.Role != "" {
		return fmt.Sprintf("%s: its machine has not been booted yet, so it has no address", e.Node.Name)
	}
	return fmt.Sprintf("%s: deployment.targetHost is null, so it can only be deployed locally, with apply-local", e.Node.Name)
}

// Outcome is what became of one node in Each.
type Outcome[T any] struct {
	Node  nixeval.Node
	Value T
	Err   error
}

// Each runs f for every node, at most parallel of them at once (0: all). Whatever
// happens to one node is its own affair: no other is cancelled or delayed by it.
func Each[T any](ctx context.Context, nodes []nixeval.Node, parallel int, f func(context.Context, nixeval.Node) (T, error)) []Outcome[T] {
	out := make([]Outcome[T], len(nodes))
	var g errgroup.Group
	if parallel > 0 {
		g.SetLimit(parallel)
	}
	for i, n := range nodes {
		g.Go(func() error {
			o := Outcome[T]{Node: n, Err: context.Cause(ctx)}
			if o.Err == nil {
				o.Value, o.Err = f(ctx, n)
			}
			out[i] = o
			return nil
		})
	}
	_ = g.Wait() // every error has its slot
	return out
}
