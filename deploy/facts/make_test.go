package facts

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

func pointer[T any](v T) *T { return &v }

func someHive() *nixeval.Hive {
	return &nixeval.Hive{
		Meta:  nixeval.Meta{Name: "demo"},
		Roles: map[string]nixeval.Role{"cp": {Count: 1}, "none": {}, "w": {Count: 2, VCPUs: 2, Memory: "4G"}},
		Nodes: []nixeval.Node{
			{Name: "cp-1", Unit: "cp", Role: "cp", Index: 1}, {Name: "db", Unit: "db"}, {Name: "web", Unit: "web"},
			{Name: "w-1", Unit: "w", Role: "w", Index: 1}, {Name: "w-2", Unit: "w", Role: "w", Index: 2},
		},
		Units: []nixeval.Unit{
			{Name: "cp"}, {Name: "w"},
			{Name: "db", Deployment: nixeval.Deployment{TargetHosts: nixeval.TargetHosts{"db.example.org", "10.1.0.9", "10.1.0.10"}}},
			{Name: "web", Deployment: nixeval.Deployment{TargetHosts: nixeval.TargetHosts{"web.example.org"}}},
		},
		Cluster: &nixeval.Cluster{
			Network:  nixeval.Network{Name: "net", CIDR: "10.0.0.1/24", Mode: "nat"},
			Endpoint: &nixeval.Endpoint{Role: pointer("cp"), Port: 6443},
		},
	}
}

func TestMake(t *testing.T) {
	machines := map[string]state.Machine{
		"cp-1": {Address: netip.MustParseAddr("10.0.0.2"), MAC: "52:54:01:00:00:01", HostKey: "ssh-ed25519 A"},
		"w-1":  {Address: netip.MustParseAddr("10.0.0.3")},
		"w-2":  {MAC: "52:54:01:00:00:03"}, // no address yet
		"w-3":  {Address: netip.MustParseAddr("10.0.0.5")},
	}
	r, err := Make(someHive(), machines)
	if err != nil {
		t.Fatal(err)
	}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "version": 1,
  "cluster": "demo",
  "nodes": {
    "cp-1": {
      "role": "cp",
      "index": 1,
      "address": "10.0.0.2",
      "mac": "52:54:01:00:00:01",
      "hostKey": "ssh-ed25519 A"
    },
    "db": {
      "address": "10.1.0.9"
    },
    "w-1": {
      "role": "w",
      "index": 1,
      "address": "10.0.0.3",
      "vcpus": 2,
      "memory": "4G"
    }
  },
  "roles": {
    "cp": [
      "cp-1"
    ],
    "none": [],
    "w": [
      "w-1"
    ]
  },
  "network": {
    "name": "net",
    "cidr": "10.0.0.0/24"
  },
  "endpoint": {
    "address": "10.0.0.2",
    "port": 6443
  }
}
`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Error(diff)
	}
	if _, err := Parse(data); err != nil {
		t.Error("what we write we cannot read:", err)
	}
	for range 20 { // maps have no order
		again, _ := Make(someHive(), machines)
		if b, _ := again.Encode(); !bytes.Equal(b, data) {
			t.Fatal("equal arguments, other facts")
		}
	}
}

func TestEndpoints(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint *nixeval.Endpoint
		want     string
	}{
		"both":      {&nixeval.Endpoint{Role: pointer("cp"), Address: pointer("10.0.0.9")}, "either"},
		"neither":   {&nixeval.Endpoint{}, "either"},
		"no role":   {&nixeval.Endpoint{Role: pointer("x")}, "role x has no node"},
		"no node":   {&nixeval.Endpoint{Role: pointer("none")}, "role none has no node"},
		"no number": {&nixeval.Endpoint{Address: pointer("api.lan")}, `"api.lan" is no address`},
	} {
		h := someHive()
		h.Cluster.Endpoint = c.endpoint
		_, err := Make(h, nil)
		if failure.KindOf(err) != failure.Provision || !bytes.Contains([]byte(err.Error()), []byte(c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := someHive()
	h.Cluster.Endpoint = &nixeval.Endpoint{Address: pointer("10.0.0.100"), Port: 443}
	if r, err := Make(h, nil); err != nil || r.Endpoint.Address.String() != "10.0.0.100" {
		t.Errorf("%v, %v", r, err)
	}
}
