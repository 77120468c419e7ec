package stages

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/remote"
)

// Drop closes a node's connection. The next connection uses the address that is recorded then.
func TestDropConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 1})
	w.must(w.apply())
	recorded := w.state()
	f := fleet.New(w.hive, fleet.Options{Options: remote.Options{DialContext: w.dial}, MachineOf: recorded.MachineOf, ClientKey: w.dir.ClientKey()})
	defer f.Close()
	old, err := f.Host(t.Context(), w.hive.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	conn, err := old.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	machine := recorded.Machines["w-1"]
	machine.Address = netip.MustParseAddr("10.0.0.99")
	recorded.Machines["w-1"] = machine

	f.Drop("w-1")
	select {
	case <-conn.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the connection is still open")
	}
	if _, err := old.Fresh(t.Context()); !errors.Is(err, remote.ErrClosed) {
		t.Errorf("the old host can still be used: %v", err)
	}
	now, err := f.Host(t.Context(), w.hive.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := now.Config().HostName; got != "10.0.0.99" {
		t.Errorf("the next connection goes to %s", got)
	}
	f.Drop("w-2") // there was no connection
}
