// Package house checks rules about the whole source tree: the order in which folders import each other, which code prints,
// where engines are named, and whether the program compiles for macOS.
package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/nixbench/nixbench"

// layers are the folders of the program, from the highest to the lowest. A package imports only packages of its own folder, with the folders
// below it, and of folders in later lines.
// The longest folder that contains a package counts, so deploy is the package itself.
var layers = []string{
	"cmd",
	"bench",
	"deploy",
	"deploy/stages",
	"deploy/rollout",
	"deploy/plan",
	"deploy/inspect deploy/explain deploy/archive",
	"deploy/node deploy/machine deploy/engine",
	"deploy/health",
	"deploy/fleet deploy/activate deploy/closure deploy/secrets deploy/check deploy/facts deploy/selection",
	"deploy/state deploy/remote",
	"nixeval deploy/machine/provider",
	"deploy/durable deploy/event deploy/failure deploy/lines deploy/child deploy/packages modules templates",
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestImports fails if a package of the program imports a package of the same or a higher layer, or of the tests.
func TestImports(t *testing.T) {
	cmd := exec.Command("go", "list", "-f", `{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}{{"\n"}}{{end}}`, "./cmd/...", "./bench/...", "./deploy/...", "./nixeval/...", "./modules", "./templates")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range strings.Split(strings.ReplaceAll(strings.TrimSpace(string(out)), module+"/", "./"), "\n") {
		pkg, imported, _ := strings.Cut(pair, " ")
		if !strings.HasPrefix(imported, "./") {
			continue
		}
		from, fromLayer := findLayer(pkg)
		to, toLayer := findLayer(imported)
		if fromLayer < 0 || toLayer < 0 || from != to && toLayer <= fromLayer {
			t.Errorf("%s imports %s: in the order of folders, %q is not below %q", pkg, imported, to, from)
		}
	}
}

// findLayer returns the longest folder of the layers that contains a package, and the index of its layer, or -1.
func findLayer(pkg string) (folder string, layer int) {
	layer = -1
	for i, folders := range layers {
		for _, f := range strings.Fields(folders) {
			if strings.HasPrefix(pkg+"/", "./"+f+"/") && len(f) > len(folder) {
				folder, layer = f, i
			}
		}
	}
	return folder, layer
}

// maxMethods is the largest number of methods of a type.
const maxMethods = 30

// TestOnlyUIPrints: only cmd/nixbench/internal/ui prints, only main exits, and no type has too many methods.
func TestOnlyUIPrints(t *testing.T) {
	printers := map[string]bool{"fmt.Print": true, "fmt.Printf": true, "fmt.Println": true, "os.Exit": true}
	top := root(t)
	checked, methods := 0, map[string]int{} // the number of methods, by folder and type
	for _, dir := range []string{"nixeval", "deploy", "bench", "modules", "cmd"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") ||
				strings.HasSuffix(path, "cmd/nixbench/main.go") || strings.Contains(path, "/sshtest/") { // for tests only
				return err
			}
			checked++
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			for _, d := range f.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && d.Recv != nil {
					name := filepath.Dir(path) + " " + strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")
					if methods[name]++; methods[name] == maxMethods+1 {
						t.Errorf("%s: %s has more than %d methods", set.Position(d.Pos()), name, maxMethods)
					}
				}
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
