package fleet

import (
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

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
