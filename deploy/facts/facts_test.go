package facts

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const example = `{
  "version": 1,
  "cluster": "demo",
  "nodes": {
    "cp-1": { "role": "cp", "index": 1, "address": "192.168.222.11", "mac": "52:54:00:00:00:01", "hostKey": "ssh-ed25519 AAAA" },
    "db": { "address": "fd00::1" }
  },
  "roles": { "cp": ["cp-1"] },
  "network": { "name": "demo", "cidr": "192.168.222.0/24" },
  "endpoint": { "address": "192.168.222.11", "port": 6443 },
  "caHash": "sha256:00",
  "secrets": { "join-token": { "path": "/run/nixbench/secrets/join-token", "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" } }
}`

func TestRoundTrip(t *testing.T) {
	r, err := Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	_ = json.Unmarshal([]byte(example), &want)
	_ = json.Unmarshal(data, &got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBadFacts(t *testing.T) {
	for old, c := range map[string]struct{ new, want string }{
		`"version": 1`:         {`"version": 2`, "version 2"},
		`"cluster": "demo"`:    {`"cluster": ""`, "no name"},
		`"caHash"`:             {`"caHas"`, "unknown field"},
		`"address": "fd00::1"`: {`"mac": "x"`, "nodes.db: it has no address"},
		`"fd00::1"`:            {`"nowhere"`, "unable to parse IP"},
	} {
		text := strings.Replace(example, old, c.new, 1)
		if text == example {
			t.Fatalf("%s is not in the example", old)
		}
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.new, err, c.want)
		}
	}
	if _, err := Parse([]byte(example + "{}")); err == nil {
		t.Error("what follows the facts is ignored")
	}
	file := filepath.Join(t.TempDir(), "runtime.json")
	if err := os.WriteFile(file, []byte(`{`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("the error does not name the file: %v", err)
	}
}

// The hand-written schema must match the Go types.
func TestSchemaMatchesTypes(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal([]byte(Schema), &schema); err != nil {
		t.Fatal(err)
	}
	defs := schema["$defs"].(map[string]any)
	for name, typ := range map[string]reflect.Type{
		"":         reflect.TypeFor[Runtime](),
		"node":     reflect.TypeFor[Node](),
		"network":  reflect.TypeFor[Network](),
		"endpoint": reflect.TypeFor[Endpoint](),
		"secret":   reflect.TypeFor[Secret](),
	} {
		object := schema
		if name != "" {
			object = defs[name].(map[string]any)
		}
		var fields, required []string
		for i := range typ.NumField() {
			field, opts, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			fields = append(fields, field)
			if opts != "omitempty" {
				required = append(required, field)
			}
		}
		slices.Sort(fields)
		slices.Sort(required)
		properties := slices.Sorted(maps.Keys(object["properties"].(map[string]any)))
		if diff := cmp.Diff(fields, properties); diff != "" {
			t.Errorf("%q: properties: %s", name, diff)
		}
		var wants []string
		for _, r := range object["required"].([]any) {
			wants = append(wants, r.(string))
		}
		slices.Sort(wants)
		if diff := cmp.Diff(required, wants); diff != "" {
			t.Errorf("%q: required: %s", name, diff)
		}
		if object["additionalProperties"] != false {
			t.Errorf("%q: unknown fields must be refused, as Go does", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(again); err != nil {
			t.Fatalf("%s was accepted, but not %s: %v", data, again, err)
		}
	})
}
