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
)

func TestMachinesAreRecorded(t *testing.T) {
	s := (&State{Version: version}).Clone()
	s.Cluster = NewCluster()
	s.Cluster.Hypervisors["a"] = Hypervisor{URI: "qemu:///system"}
	s.Machines["w-1"] = Machine{Role: "w", MAC: "52:54:01:00:00:01", Address: netip.MustParseAddr("10.0.0.2"), HostKey: "ssh-ed25519 A"}
	s.Begin(Intent{Run: "r", Node: "w-1", Step: MakeMachine})
	s.Making("w-1", "a", Image{Hash: "h", Kernel: "k"})
	s.Made("w-1", time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC))
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var again State
	if err := decodeFile("x", data, version, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, again.Clone(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	if !again.Unready("w-1") || len(s.Cluster.ID) != 16 {
		t.Errorf("%+v", again)
	}
	again.MachineReady("w-1")
	copied := again.Clone()
	copied.Cluster.Hypervisors["b"] = Hypervisor{}
	copied.Removed("w-1")
	if again.Unready("w-1") || len(again.Machines) != 1 || len(again.Cluster.Hypervisors) != 1 || len(copied.Machines) != 0 {
		t.Errorf("%+v\n%+v", again, copied)
	}
}

func TestKeys(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), ".nixbench", "c"))
	one, err := d.MakeHostKey("w-1")
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.MakeHostKey("w-1")
	if err != nil {
		t.Fatal(err)
	}
	two, err := d.MakeHostKey("w-2")
	if err != nil {
		t.Fatal(err)
	}
	if one.Public != again.Public || one.Public == two.Public || !strings.HasPrefix(one.Public, "ssh-ed25519 ") || strings.Contains(one.Public, "\n") {
		t.Errorf("%q, %q, %q", one.Public, again.Public, two.Public)
	}
	if _, err := d.MakeClientKey(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{"secrets": 0o700, "secrets/hosts": 0o700, "secrets/hosts/w-1": 0o600, "secrets/id_ed25519": 0o600} {
		info, err := os.Stat(filepath.Join(string(d), path))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode().Perm(), err)
		}
	}
	// A damaged key is not replaced, since the machine has its public half. The error does not contain the key.
	if err := os.WriteFile(d.hostKeyFile("w-2"), []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.MakeHostKey("w-2"); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
	if err := d.RemoveHostKey("w-1"); err != nil {
		t.Fatal(err)
	}
	if err := d.RemoveHostKey("w-1"); err != nil {
		t.Error("a second time:", err)
	}
	if err := d.RemoveKeys(); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(string(d), "secrets", "*"))
	if len(left) != 0 {
		t.Errorf("left: %q", left)
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
