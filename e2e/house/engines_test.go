package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// namesOfEngines are the files outside of the engines' own packages whose code names an engine, with the reason.
var namesOfEngines = map[string]string{
	"cmd/nixbench/engines.go": "the players of engines",
	"deploy/engine_kinds.go":  "the table of engines",
	"cmd/nixbench/init.go":    "the names of templates, which are hives for one engine",
	"cmd/nixbench/root.go":    "the list of commands",
}

// wordsOfEngines are the words of one engine that code outside of its packages does not contain either.
var wordsOfEngines = map[string][]string{
	"kubernetes": {"kubectl", "kubelet", "kubeadm", "etcd", "pods"},
	"slurm":      {"munge"},
}

// TestEnginesAreNamedOnce fails if an identifier, a string or an import path of the program names an engine outside of the
// engine's own packages and of namesOfEngines. An engine has the name of its folder in deploy/engine; its packages
// are in this folder, in modules/NAME, in bench/player/NAME and in the files cmd/nixbench/NAME_*.go. Comments may give engines as examples.
func TestEnginesAreNamedOnce(t *testing.T) {
	top := root(t)
	kinds := engineNames(t, top)
	used := map[string]bool{}
	for _, dir := range []string{"cmd", "bench", "deploy", "modules", "nixeval", "templates"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := filepath.Rel(top, path)
			if err != nil {
				return err
			}
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			for _, kind := range kinds {
				if isPackageOfEngine(file, kind) {
					continue
				}
				for _, word := range append(wordsOfEngines[kind], kind) {
					for _, at := range findName(parsed, word) {
						used[file] = true
						if namesOfEngines[file] == "" {
							t.Errorf("%s: contains %s, a word of the engine %s; move this into the engine's packages, or extend engine.Kind", set.Position(at), word, kind)
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for file := range namesOfEngines {
		if !used[file] {
			t.Errorf("%s names no engine; remove it from namesOfEngines", file)
		}
	}
}

// engineNames returns the names of the engines: the folders in deploy/engine with a file of the same name.
func engineNames(t *testing.T, top string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(top, "deploy/engine/*/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, file := range files {
		if name := filepath.Base(filepath.Dir(file)); filepath.Base(file) == name+".go" {
			out = append(out, name)
		}
	}
	if !slices.Contains(out, "kubernetes") {
		t.Fatalf("engines: %q", out)
	}
	return out
}

func isPackageOfEngine(file, kind string) bool {
	prefixes := []string{"deploy/engine/" + kind + "/", "bench/player/" + kind + "/", "modules/" + kind + "/", "cmd/nixbench/" + kind + "_"}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(file, prefix) })
}

// findName returns the positions of the identifiers and strings of a file that contain name in any case.
func findName(file *ast.File, name string) (at []token.Pos) {
	contains := func(text string) bool { return strings.Contains(strings.ToLower(text), name) }
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if contains(n.Name) {
				at = append(at, n.Pos())
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && contains(n.Value) {
				at = append(at, n.Pos())
			}
		}
		return true
	})
	return at
}

func TestFindName(t *testing.T) {
	source := "// Package p is for slurm.\npackage p\n\nimport _ \"x/slurm\"\n\nconst slurmKind, other = `With SLURM`, \"flux\" // slurm\n"
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if at := findName(file, "slurm"); len(at) != 3 {
		t.Errorf("%d names, want the import, the constant and its value", len(at))
	}
}
