package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// evaluate returns the value of a Nix expression as JSON.
func evaluate(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("nix-instantiate", append([]string{"--eval", "--strict", "--json", "--arg", "nixpkgs", fixture.Nixpkgs(t)}, args...)...)
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return out
}

// TestSchema: docs/hive.schema.json is up to date, accepts the hives of the templates, and refuses typos.
func TestSchema(t *testing.T) {
	var text bytes.Buffer
	if err := json.Indent(&text, bytes.TrimSpace(evaluate(t, "schema.nix")), "", "  "); err != nil {
		t.Fatal(err)
	}
	text.WriteByte('\n')
	checkFile(t, "hive.schema.json", text.String())
	var schema map[string]any
	if err := json.Unmarshal(text.Bytes(), &schema); err != nil {
		t.Fatal(err)
	}

	// Each hive as it is written, and with the default values of the options. Functions become strings.
	hives := evaluate(t, "--expr", `{ nixpkgs }:
		let
		  lib = import (nixpkgs + "/lib");
		  plain = v: if builtins.isFunction v then "function" else if builtins.isPath v then toString v
		    else if builtins.isList v then map plain v else if builtins.isAttrs v then builtins.mapAttrs (_: plain) v else v;
		  read = file: let
		      f = import file;
		      hive = if builtins.isFunction f then f (builtins.intersectAttrs (builtins.functionArgs f) { inherit nixpkgs; modules = "/modules"; }) else f;
		      written = lib.filterAttrs (name: _: name == "roles" || name == "cluster") hive;
		      config = (lib.evalModules { modules = [ ../../modules/hive.nix written ]; }).config;
		    in { written = plain written; complete = plain { inherit (config) roles cluster; }; };
		in lib.genAttrs [ "kubernetes" "schedulers" "existing-machines" "empty" ] (name: read (../../templates + "/${name}/hive.nix"))`)
	var templates map[string]map[string]any
	if err := json.Unmarshal(hives, &templates); err != nil {
		t.Fatal(err)
	}
	roles := 0
	for name, forms := range templates {
		for form, hive := range forms {
			if err := validate(schema, hive, "hive"); err != nil {
				t.Errorf("%s, %s: %v", name, form, err)
			}
			found, _ := hive.(map[string]any)["roles"].(map[string]any)
			roles += len(found)
		}
	}
	if roles < 8 {
		t.Errorf("only %d roles were validated", roles)
	}

	for hive, want := range map[string]string{
		`{"role":{}}`:                                         "hive.role is unknown",
		`{"roles":{"worker":{"coutn":3}}}`:                    "hive.roles.worker.coutn is unknown",
		`{"roles":{"worker":{"count":"3"}}}`:                  "hive.roles.worker.count is no integer",
		`{"roles":{"worker":{"count":-1}}}`:                   "hive.roles.worker.count is less than 0",
		`{"roles":{"worker":{"vcpus":0}}}`:                    "hive.roles.worker.vcpus is less than 1",
		`{"roles":{"worker":{"memory":"4 GB"}}}`:              "hive.roles.worker.memory does not match",
		`{"roles":{"worker":{"disks":"4G"}}}`:                 "hive.roles.worker.disks is no array",
		`{"roles":{"worker":{"firmware":"efi"}}}`:             "hive.roles.worker.firmware is none of",
		`{"roles":{"worker":{"schedulers":{"x":{"y":1}}}}}`:   "hive.roles.worker.schedulers.x.y is unknown",
		`{"cluster":{"network":{"mod":"nat"}}}`:               "hive.cluster.network.mod is unknown",
		`{"cluster":{"endpoint":{"port":70000}}}`:             "hive.cluster.endpoint fits no alternative",
		`{"cluster":{"hypervisors":{"a":{"uri":"x","y":1}}}}`: "hive.cluster.hypervisors.a.y is unknown",
		`{"cluster":{"hypervisors":{"a":{"pool":"x"}}}}`:      "hive.cluster.hypervisors.a.uri is missing",
	} {
		var value any
		if err := json.Unmarshal([]byte(hive), &value); err != nil {
			t.Fatal(err)
		}
		if err := validate(schema, value, "hive"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", hive, err, want)
		}
	}
}

// validate checks a value with the keywords of JSON Schema that schema.nix uses. Other keywords are an error.
func validate(schema map[string]any, value any, at string) error {
	for _, keyword := range slices.Sorted(maps.Keys(schema)) {
		arg := schema[keyword]
		switch keyword {
		case "$schema", "title", "description", "default":
		case "additionalProperties", "properties", "items": // below, for the types that have them
		case "type":
			if !hasType(value, arg.(string)) {
				return fmt.Errorf("%s is no %s", at, arg)
			}
		case "minimum":
			if n, ok := value.(float64); ok && n < arg.(float64) {
				return fmt.Errorf("%s is less than %v", at, arg)
			}
		case "maximum":
			if n, ok := value.(float64); ok && n > arg.(float64) {
				return fmt.Errorf("%s is more than %v", at, arg)
			}
		case "pattern":
			if s, ok := value.(string); ok && !regexp.MustCompile(arg.(string)).MatchString(s) {
				return fmt.Errorf("%s does not match %s", at, arg)
			}
		case "required":
			object, _ := value.(map[string]any)
			for _, name := range arg.([]any) {
				if _, ok := object[name.(string)]; !ok {
					return fmt.Errorf("%s.%s is missing", at, name)
				}
			}
		case "enum":
			if !slices.Contains(arg.([]any), value) {
				return fmt.Errorf("%s is none of %v", at, arg)
			}
		case "anyOf":
			fits := func(s any) bool { return validate(s.(map[string]any), value, at) == nil }
			if !slices.ContainsFunc(arg.([]any), fits) {
				return fmt.Errorf("%s fits no alternative", at)
			}
		default:
			return fmt.Errorf("%s: the keyword %s is not checked", at, keyword)
		}
	}
	switch value := value.(type) {
	case []any:
		for i, v := range value {
			if items, ok := schema["items"].(map[string]any); ok {
				if err := validate(items, v, fmt.Sprintf("%s[%d]", at, i)); err != nil {
					return err
				}
			}
		}
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(value)) {
			of, known := properties[name].(map[string]any)
			if !known {
				if schema["additionalProperties"] == false {
					return fmt.Errorf("%s.%s is unknown", at, name)
				}
				of, _ = schema["additionalProperties"].(map[string]any)
			}
			if err := validate(of, value[name], at+"."+name); err != nil {
				return err
			}
		}
	}
	return nil
}

func hasType(value any, name string) bool {
	switch v := value.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case float64:
		return name == "integer" && v == math.Trunc(v)
	case []any:
		return name == "array"
	}
	return name == "object"
}
