package docs

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/e2e/fixture"
)

var update = flag.Bool("update", false, "rewrite the generated documents")

// empty are the defaults of options that are not set.
var empty = []string{"null", "{ }", "[ ]", `""`}

type option struct {
	Name, Type, Description string
	Default, Example        *string
	DefaultKind             string
	ReadOnly                bool
}

// sections are the sections of options.md; key is the attribute of options.nix.
var sections = []struct{ key, title, text string }{
	{"hive", "The hive", "[hive.md](hive.md) is the guide. Every other attribute of a hive is a node, or `defaults` of all nodes."},
	{"benchmarks", "Benchmarks", "[bench.md](bench.md) is the guide. A benchmark may be a function of `{ lib, ... }`."},
	{"deployment", "How a node is deployed", "In the configuration of each node. Names, types and defaults are Colmena's, apart from `generated` keys."},
	{"node", "Guests and their nodes", "NixOS options of `modules/guest.nix`, `image.nix`, `runtime.nix`, `handover` and `before-switch.nix`."},
	{"kubernetes", "Kubernetes", "[kubernetes.md](kubernetes.md) is the guide."},
	{"slurm", "SLURM", "[slurm.md](slurm.md) is the guide."},
	{"flux", "Flux", "[flux.md](flux.md) is the guide."},
}

func options(t *testing.T) map[string][]option {
	t.Helper()
	nixpkgs := fixture.Nixpkgs(t)
	cmd := exec.Command("nix-instantiate", "--eval", "--strict", "--json", "--arg", "nixpkgs", nixpkgs, "options.nix")
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var all map[string][]option
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	for _, s := range sections {
		if len(all[s.key]) < 5 {
			t.Errorf("only %d options in %q", len(all[s.key]), s.key)
		}
	}
	return all
}

// code formats a Nix value as Markdown.
func code(s string) string {
	s = strings.TrimSpace(s)
	if !strings.Contains(s, "\n") {
		return "`" + s + "`"
	}
	// Short values are formatted on one line.
	if one := regexp.MustCompile(`\n\s*`).ReplaceAllString(s, " "); len(one) <= 90 && !strings.Contains(s, "''") {
		return "`" + one + "`"
	}
	return "\n\n  ```nix\n  " + strings.ReplaceAll(s, "\n", "\n  ") + "\n  ```"
}

func markdown(all map[string][]option) string {
	var b strings.Builder
	b.WriteString("<!-- Written by `go test ./e2e/docs -update` from the declarations in modules/. -->\n" +
		"# Options\n\nAll options of a hive, of its nodes, and of nixbench's NixOS modules. An option without a default here is null or empty. " +
		"*The facts* are the module argument `runtime`. Files of NixOS options are on the node; the facts can replace their paths.\n\n")
	for _, s := range sections {
		fmt.Fprintf(&b, "- [%s](#%s): %d options\n", s.title, strings.ReplaceAll(strings.ToLower(s.title), " ", "-"), len(all[s.key]))
	}
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", s.title, s.text)
		for _, o := range all[s.key] {
			fmt.Fprintf(&b, "\n### `%s`\n\n%s\n\n", o.Name, strings.TrimSpace(o.Description))
			parts := []string{plainType(o.Type)}
			switch {
			case o.ReadOnly:
				parts = append(parts, "value "+code(*o.Default)+", which cannot be set")
			case o.Default == nil:
				parts = append(parts, "must be set")
			case o.DefaultKind == "literalMD":
				parts = append(parts, "default: "+*o.Default)
			case !slices.Contains(empty, *o.Default):
				parts = append(parts, "default "+code(*o.Default))
			}
			// An example beside a default value explains only a type with parts.
			if o.Example != nil && (len(parts) == 1 || o.Default == nil || strings.ContainsAny(*o.Example, "{[")) {
				parts = append(parts, "example "+code(*o.Example))
			}
			fmt.Fprintf(&b, "%s\n", strings.Join(parts, "; "))
		}
	}
	return strings.NewReplacer("default \n", "default:\n", "example \n", "example:\n").Replace(b.String())
}

// plainType returns the type in plain words, without characters that Markdown would interpret.
func plainType(s string) string {
	s = strings.NewReplacer(`"\n"`, "newlines", "(optionally newline-terminated) single-line string", "string", "16 bit unsigned integer; between 0 and 65535 (both inclusive)", "port",
		"positive integer, meaning >0", "positive integer", "unsigned integer, meaning >=0", "unsigned integer", " (both inclusive)", "", "(submodule)", "submodule", "strings concatenated with newlines", "text",
		"strings concatenated with \"\\n\"", "text", "string or signed integer or boolean or list of (string or signed integer or boolean)", "value or list of values", "signed integer or boolean or string or list of string", "value or list of strings", "attribute set", "set", "(string or (signed integer or boolean) convertible to it)", "string",
		"unsigned integer, or floating point number", "number",
		"absolute path", "path").Replace(s)
	return regexp.MustCompile(`matching the pattern (\S+)`).ReplaceAllString(s, "like `$1`")
}

// checkFile compares a generated document with the file, or writes it with -update.
func checkFile(t *testing.T, name, want string) {
	t.Helper()
	file := filepath.Join("..", "..", "docs", name)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("docs/%s is stale; run make update\n%s", name, diff)
	}
}

func TestOptions(t *testing.T) {
	all := options(t)
	for _, list := range all {
		for _, o := range list {
			if o.Type == "" || o.Type == "unspecified value" {
				t.Errorf("%s has no type", o.Name)
			}
			if d := strings.TrimSpace(o.Description); len(d) < 10 {
				t.Errorf("%s has no description", o.Name)
			} else if !strings.HasSuffix(d, ".") {
				t.Errorf("%s: the description does not end with a full stop: %q", o.Name, d)
			}
			if o.Example == nil && !o.ReadOnly && (o.Default == nil || slices.Contains(empty, *o.Default)) {
				t.Errorf("%s has no example, and its default is empty", o.Name)
			}
		}
	}
	checkFile(t, "options.md", markdown(all))
}

// docs/options.md has the options of every module: a module that options.nix does not evaluate would not
// be documented.
func TestModulesAreDocumented(t *testing.T) {
	known := map[string]bool{}
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "options.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^### `(.*)`$").FindAllStringSubmatch(string(data), -1) {
		known[m[1]] = true
	}
	files, err := filepath.Glob("../../modules/*.nix")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../modules/*/*.nix")
	if err != nil {
		t.Fatal(err)
	}
	prefix := regexp.MustCompile(`(?m)^  options\.([A-Za-z.]+) = `)
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range prefix.FindAllStringSubmatch(string(text), -1) {
			found := strings.Contains(string(text), "internal = true")
			for name := range known {
				found = found || name == m[1] || strings.HasPrefix(name, m[1]+".")
			}
			if !found {
				t.Errorf("%s declares %s, which docs/options.md does not have; add the module to options.nix", file, m[1])
			}
		}
	}
}
