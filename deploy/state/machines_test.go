package state

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

func TestMachinesAreRecorded(t *testing.T) {
	s := (&State{Version: version}).Clone()
	s.Cluster = NewCluster()
	s.Cluster.Network = provider.Network{Name: "n", Mode: provider.NAT, CIDR: netip.MustParsePrefix("10.0.0.0/24")}
	s.Cluster.Hypervisors["a"] = provider.Hypervisor{URI: "qemu:///system"}
	s.Machines["w-1"] = Machine{Role: "w", MAC: "52:54:01:00:00:01", Address: netip.MustParseAddr("10.0.0.2"), HostKey: "ssh-ed25519 A"}
	s.Begin(Intent{Run: "r", Node: "w-1", Step: MakeMachine})
	s.RecordPlannedMachine("w-1", "a", provider.Image{Hash: "h", Kernel: "k"})
	s.RecordCreationTime("w-1", time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC))
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"network":{"name":"n","mode":"nat","cidr":"10.0.0.0/24"}`, `"image":{"hash":"h","kernel":"k"}`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s has no %s", data, want)
		}
	}
	var again State
	if err := DecodeFile("x", data, version, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, again.Clone(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
	if !again.HasIntent("w-1", MakeMachine) || len(s.Cluster.ID) != 16 {
		t.Errorf("%+v", again)
	}
	again.DropIntents("w-1", MakeMachine)
	copied := again.Clone()
	copied.Cluster.Hypervisors["b"] = provider.Hypervisor{}
	copied.Removed("w-1")
	if again.HasIntent("w-1", MakeMachine) || len(again.Machines) != 1 || len(again.Cluster.Hypervisors) != 1 || len(copied.Machines) != 0 {
		t.Errorf("%+v\n%+v", again, copied)
	}
}

// Unchanged facts are not written again, so that a program that watches the file is not notified.
func TestFactsAreWrittenOnce(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), ".nixbench", "c"))
	machines := map[string]Machine{"b": {HostKey: "ssh-ed25519 B"}, "a": {HostKey: "ssh-ed25519 A"}}
	if err := d.WriteFacts([]byte("{}\n"), machines); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(d.Facts(), old, old); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteFacts([]byte("{}\n"), machines); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(d.Facts())
	if err != nil || !info.ModTime().Equal(old) && info.ModTime().After(old.Add(time.Second)) {
		t.Errorf("written again at %v, %v", info.ModTime(), err)
	}
	known, err := os.ReadFile(d.KnownHosts())
	if err != nil || string(known) != "a ssh-ed25519 A\nb ssh-ed25519 B\n" {
		t.Errorf("%q, %v", known, err)
	}
}
