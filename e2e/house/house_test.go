// Package house checks rules about the whole source tree: which package imports which,
// which code prints, the configuration of the linter, and the words of comments, names and documents.
package house

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write .golangci.yml and docs/packages.md")

const module = "github.com/nixbench/nixbench"

// leaves are packages that every package may import.
var leaves = []string{"deploy/durable", "deploy/event", "deploy/failure", "modules", "templates"}

// rules list which packages of this module a package may import, apart from leaves. A package
// that is not listed fails the test: add it here, and consider what it should be allowed to import.
var rules = []struct {
	pkg   string
	allow []string
}{
	{"modules", nil},
	{"templates", nil},
	{"deploy/durable", nil},
	{"deploy/failure", nil},
	{"deploy/event", nil},
	{"nixeval/nixlog", nil},
	{"nixeval", []string{"nixeval/nixlog"}},
	{"deploy/selection", []string{"nixeval"}},
	{"deploy/facts", []string{"nixeval"}},
	{"deploy/state", []string{"nixeval"}},
	{"deploy/archive", []string{"deploy/state"}},
	{"deploy/explain", []string{"deploy/state"}},
	{"deploy/report", []string{"nixeval", "deploy/state", "deploy/explain", "deploy/packages"}},
	{"deploy/provision", nil},
	{"deploy/check", []string{"nixeval"}},
	{"deploy/engine", []string{"nixeval", "deploy/check"}},
	{"deploy/engine/kubernetes", []string{"nixeval", "deploy/check", "deploy/engine"}},
	{"deploy/engine/batch", []string{"deploy/engine", "deploy/failure"}},
	{"deploy/engine/flux", []string{"deploy/check", "deploy/engine", "deploy/engine/batch"}},
	{"deploy/engine/slurm", []string{"deploy/check", "deploy/engine", "deploy/engine/batch"}},
	{"deploy/engine/enginetest", []string{"deploy/engine", "deploy/check"}},
	{"deploy/provision/seed", []string{"deploy/provision"}},
	{"deploy/provision/domainxml", []string{"deploy/provision", "deploy/provision/seed"}},
	{"deploy/provision/libvirt", []string{"deploy/provision", "deploy/provision/domainxml", "deploy/provision/seed"}},
	{"deploy/provision/fakeprovider", []string{"deploy/provision"}},
	{"deploy/provision/provisiontest", []string{"deploy/provision"}},
	{"deploy/remote", []string{"deploy/remote/internal/shell"}},
	{"deploy/remote/internal/shell", nil},
	{"deploy/remote/sshtest", []string{"deploy/remote/internal/shell"}},
	{"deploy/closure/nar", nil},
	{"deploy/closure/daemon", nil},
	{"deploy/closure/daemon/daemontest", []string{"deploy/closure/daemon"}},
	{"deploy/closure", []string{"nixeval", "nixeval/nixlog", "deploy/closure/daemon", "deploy/closure/nar", "deploy/remote"}},
	{"deploy/secrets", []string{"nixeval", "deploy/remote"}},
	{"deploy/secrets/vault", []string{"nixeval"}},
	{"deploy/activate", []string{"nixeval", "deploy/remote"}},
	{"e2e/lab", nil},
	{"deploy/fleet", []string{"nixeval", "deploy/provision", "deploy/remote", "deploy/state"}},
	{"deploy/node", []string{"nixeval", "deploy/activate", "deploy/closure", "deploy/fleet", "deploy/remote", "deploy/secrets", "deploy/state"}},
	{"deploy/machines", []string{"nixeval", "deploy/facts", "deploy/fleet", "deploy/provision", "deploy/remote", "deploy/secrets/vault", "deploy/state"}},
	{"deploy/inspect", []string{"nixeval", "deploy/activate", "deploy/check", "deploy/engine", "deploy/fleet", "deploy/machines", "deploy/node", "deploy/provision", "deploy/state"}},
	{"deploy/packages", []string{}},
	{"deploy/plan", []string{"nixeval", "deploy/activate", "deploy/node", "deploy/provision", "deploy/state"}},
	{"deploy/rollout", []string{"nixeval", "deploy/check", "deploy/engine", "deploy/fleet", "deploy/inspect", "deploy/selection", "deploy/state"}},
	{"deploy", []string{"nixeval", "deploy/activate", "deploy/closure", "deploy/engine", "deploy/fleet", "deploy/inspect", "deploy/machines", "deploy/node", "deploy/packages", "deploy/plan", "deploy/provision", "deploy/remote", "deploy/rollout", "deploy/secrets", "deploy/selection", "deploy/state"}},
	{"deploy/bench/workload", nil},
	{"deploy/bench/player", []string{"deploy/bench/workload"}},
	{"deploy/bench/player/playertest", []string{"deploy/bench/player", "deploy/bench/workload"}},
	{"deploy/bench/player/null", []string{"deploy/bench/player", "deploy/bench/workload"}},
	{"deploy/bench/player/program", []string{"deploy/bench/player", "deploy/bench/workload"}},
	{"deploy/bench/player/slurm", []string{"deploy/bench/player", "deploy/bench/workload", "deploy/engine", "deploy/engine/batch", "deploy/engine/slurm"}},
	{"deploy/bench/player/kubernetes", []string{"deploy/bench/player", "deploy/bench/workload", "deploy/engine", "deploy/engine/batch", "deploy/engine/kubernetes"}},
	{"deploy/bench/player/flux", []string{"deploy/bench/player", "deploy/bench/workload", "deploy/engine", "deploy/engine/batch", "deploy/engine/flux"}},
	{"deploy/bench/trial", []string{"deploy/bench/player", "deploy/bench/workload"}},
	{"deploy/bench/stats", nil},
	{"deploy/bench/noise", nil},
	{"deploy/bench/page", []string{"deploy/bench/player", "deploy/bench/stats", "deploy/bench/trial", "deploy/report"}},
	{"deploy/bench/export", []string{"deploy/bench/workload"}},
	{"deploy/bench", []string{"nixeval", "deploy/bench/player", "deploy/bench/player/program", "deploy/bench/trial", "deploy/bench/workload"}},
	{"cmd/nixbench/internal/ui", nil},
	{"cmd/nixbench/internal/enginecmd", []string{"nixeval", "deploy/engine", "deploy/fleet", "deploy/state"}},
	{"cmd/nixbench/internal/kubernetescmd", []string{"deploy/engine/kubernetes", "deploy/state", "cmd/nixbench/internal/enginecmd"}},
	{"cmd/nixbench", []string{"nixeval", "deploy", "deploy/fleet", "deploy/node", "deploy/packages", "deploy/plan", "deploy/machines", "deploy/inspect", "deploy/rollout", "deploy/selection", "deploy/facts", "deploy/provision", "deploy/provision/libvirt", "deploy/state", "deploy/archive", "deploy/explain", "deploy/report", "deploy/remote", "deploy/closure", "deploy/secrets", "deploy/secrets/vault", "deploy/activate", "deploy/check", "deploy/engine", "deploy/engine/flux", "deploy/engine/kubernetes", "deploy/engine/slurm", "deploy/bench", "deploy/bench/player", "deploy/bench/player/kubernetes", "deploy/bench/player/slurm", "deploy/bench/workload", "deploy/bench/noise", "deploy/bench/stats", "deploy/bench/trial", "deploy/bench/page", "deploy/bench/export", "cmd/nixbench/internal/ui", "cmd/nixbench/internal/enginecmd", "cmd/nixbench/internal/kubernetescmd", "deploy/bench/player/flux"}},
	{"e2e/fixture", nil},
	{"e2e/transcript", nil},
	{"e2e/deploy", nil},
	{"e2e/docs", nil},
	{"e2e/sample", nil},
	{"e2e/faults", []string{"e2e/fixture", "e2e/lab"}},
	{"e2e/guests", []string{"e2e/fixture", "e2e/lab"}},
	{"e2e/provision", nil},
	{"e2e/house", nil},
	{"e2e/flake", nil},
	{"e2e/modules", nil},
	{"e2e/real", nil},
	{"e2e/kube", nil},
	{"e2e/kubernetes", nil},
	{"e2e/schedulers", nil},
	{"e2e/slurm", nil},
	{"e2e/handover", nil},
	{"e2e/flux", nil},
	{"e2e/volcano", nil},
	{"e2e/bench", nil},
	{"e2e/suite", nil},
	{"e2e/deep", []string{"e2e/suite"}},
	{"e2e/nixos-tests", nil},
	{"internal/release", nil},
	{"internal/bench/memgroup", nil},
	{"internal/bench/deployments", []string{"e2e/fixture", "e2e/lab"}},
	{"internal/bench", []string{"internal/bench/deployments", "internal/bench/memgroup", "nixeval", "deploy", "deploy/fleet", "deploy/node", "deploy/state", "deploy/remote", "deploy/remote/sshtest", "deploy/closure", "deploy/secrets", "deploy/activate", "e2e/fixture"}},
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestImports(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string][]string{}
	for _, r := range rules {
		allowed[r.pkg] = append(slices.Clone(leaves), r.allow...)
	}
	seen := map[string]bool{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkg := strings.TrimPrefix(p.ImportPath, module+"/")
		seen[pkg] = true
		allow, known := allowed[pkg]
		if !known {
			t.Errorf("%s is not in the rules", pkg)
			continue
		}
		for _, i := range p.Imports {
			if ours, ok := strings.CutPrefix(i, module+"/"); ok && !slices.Contains(allow, ours) {
				t.Errorf("%s imports %s, which the layout forbids", pkg, ours)
			}
		}
	}
	for _, r := range rules {
		if !seen[r.pkg] {
			t.Errorf("the rules name %s, which does not exist", r.pkg)
		}
	}
}

// TestLinterConfiguration: the linter has the same rules, so that an editor shows them.
func TestLinterConfiguration(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Written by `go test ./e2e/house -update`; the rules are in house_test.go.\n" +
		"version: \"2\"\nlinters:\n  enable:\n    - depguard\n    - staticcheck\n  settings:\n    depguard:\n      rules:\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "        %s:\n          list-mode: lax\n          files:\n            - \"**/%s/*.go\"\n            - \"!$test\"\n",
			strings.ReplaceAll(r.pkg, "/", "-"), r.pkg)
		if allow := append(slices.Clone(leaves), r.allow...); len(allow) > 0 {
			b.WriteString("          allow:\n")
			for _, a := range allow {
				fmt.Fprintf(&b, "            - %s/%s$\n", module, a)
			}
		}
		fmt.Fprintf(&b, "          deny:\n            - pkg: %s\n              desc: the layout in docs/architecture.md forbids this import\n", module)
	}
	file := filepath.Join(root(t), ".golangci.yml")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("%s is stale; run go test ./e2e/house -update\n%s", file, diff)
	}
}

// TestOnlyUIPrints: only cmd/nixbench/internal/ui prints, and only main exits.
func TestOnlyUIPrints(t *testing.T) {
	printers := map[string]bool{"fmt.Print": true, "fmt.Printf": true, "fmt.Println": true, "os.Exit": true}
	top := root(t)
	checked := 0
	for _, dir := range []string{"nixeval", "deploy", "modules", "cmd"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") ||
				strings.HasSuffix(path, "cmd/nixbench/main.go") || strings.Contains(path, "/sshtest/") || strings.Contains(path, "/provisiontest/") { // for tests only
				return err
			}
			checked++
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			for _, i := range f.Imports {
				if i.Path.Value == `"log"` {
					t.Errorf("%s: imports log; the core sends events", set.Position(i.Pos()))
				}
				if strings.Contains(i.Path.Value, "google/renameio") && !strings.Contains(path, "/deploy/durable/") {
					t.Errorf("%s: imports renameio, which may leave secrets in $TMPDIR; deploy/durable does not", set.Position(i.Pos()))
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && (printers[x.Name+"."+s.Sel.Name]) {
						t.Errorf("%s: %s.%s", set.Position(n.Pos()), x.Name, s.Sel.Name)
					}
				}
				if c, ok := n.(*ast.CallExpr); ok {
					if id, ok := c.Fun.(*ast.Ident); ok && (id.Name == "panic" || id.Name == "println") {
						t.Errorf("%s: %s", set.Position(n.Pos()), id.Name)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 20 {
		t.Errorf("only %d files were checked", checked)
	}
}
