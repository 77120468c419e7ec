package machine

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/facts"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

func generatedKey(secret, kind, part string) nixeval.Key {
	return nixeval.Key{Path: "/run/s/" + secret + part, Generated: &nixeval.Generated{Secret: secret, Kind: kind, Part: part}}
}

// The port of the endpoint is that of the hive, or the default of the engine.
func TestEndpointPort(t *testing.T) {
	address := "10.0.0.9"
	for _, test := range []struct {
		hive, engine int
		want         string
	}{{0, 6443, `"port": 6443`}, {443, 6443, `"port": 443`}, {0, 0, `"address": "10.0.0.9"
  }`}} {
		unit := nixeval.Unit{Name: "w", Nodes: []string{"w-1"}}
		hive := &nixeval.Hive{
			Roles: map[string]nixeval.Role{"w": {Count: 1}}, Units: []nixeval.Unit{unit},
			Nodes:   []nixeval.Node{{Name: "w-1", Unit: "w", Role: "w", Index: 1}},
			Cluster: &nixeval.Cluster{Endpoint: &nixeval.Endpoint{Address: &address, Port: test.hive}},
		}
		data, err := (&Manager{Hive: hive, APIPort: test.engine}).EncodeFacts(&state.State{})
		if err != nil || !strings.Contains(string(data), test.want) {
			t.Errorf("%+v: %v\n%s", test, err, data)
		}
		if _, err := facts.Parse(data); err != nil {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

func TestGeneratedFacts(t *testing.T) {
	text := nixeval.Key{Path: "/run/s/mine"}
	hive := &nixeval.Hive{Units: []nixeval.Unit{
		{Name: "cp", Deployment: nixeval.Deployment{Keys: map[string]nixeval.Key{
			"mine": text, "token": generatedKey("token", "token", "text"),
			"ca.crt": generatedKey("cluster-ca", "ca", "certificate"), "ca.key": generatedKey("cluster-ca", "ca", "key"),
		}}},
		{Name: "worker", Deployment: nixeval.Deployment{Keys: map[string]nixeval.Key{"token": generatedKey("token", "token", "text")}}},
	}}
	dir := filepath.Join(t.TempDir(), "secrets")
	got, ca, err := GeneratedFacts(hive, vault.Open(dir))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got["token"].Path != "/run/s/tokentext" || got["mine"].Path != "" {
		t.Errorf("%+v", got)
	}
	if ca == "" || got["ca.crt"].PublicKeyHash != ca || got["ca.key"].PublicKeyHash != "" {
		t.Errorf("the authority's hash: %q, %+v", ca, got)
	}
	again, ca2, err := GeneratedFacts(hive, vault.Open(dir))
	if err != nil || ca2 != ca || again["token"] != got["token"] {
		t.Errorf("facts changed by themselves: %+v, %v", again, err)
	}

	hive.Units[1].Deployment.Keys["token"] = generatedKey("other", "token", "text")
	if _, _, err := GeneratedFacts(hive, vault.Open(dir)); err == nil ||
		!strings.Contains(err.Error(), "worker.deployment.keys.token and cp.deployment.keys.token differ") {
		t.Error(err)
	}
	if none, ca, err := GeneratedFacts(&nixeval.Hive{}, vault.Open(dir)); none != nil || ca != "" || err != nil {
		t.Errorf("a hive without generated secrets: %v, %q, %v", none, ca, err)
	}
}
