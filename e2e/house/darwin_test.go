package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDarwin checks the types of the program as it is built for macOS, so that it uses nothing that only Linux has. `make lint` compiles it
// for arm64. This test takes a second, and is also for amd64: it reads the sources of all packages, since to compile the standard library
// for another system takes almost a minute.
func TestDarwin(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap", "./cmd/nixbench")
			cmd.Dir = root(t)
			cmd.Env = append(os.Environ(), "GOOS=darwin", "GOARCH="+arch, "CGO_ENABLED=0")
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			checkTypes(t, json.NewDecoder(bytes.NewReader(out)), types.SizesFor("gc", arch))
		})
	}
}

// checkTypes checks the packages of a list, which contains each package after the packages that it imports.
func checkTypes(t *testing.T, list *json.Decoder, sizes types.Sizes) {
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	for files := token.NewFileSet(); ; {
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
			ImportMap       map[string]string // path in the source → path of the package, where they differ
		}
		if err := list.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if checked[p.ImportPath] != nil {
			continue
		}
		var syntax []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			syntax = append(syntax, f)
		}
		ours := strings.HasPrefix(p.ImportPath, module+"/")
		config := types.Config{Sizes: sizes, IgnoreFuncBodies: !ours, Importer: importer(func(path string) (*types.Package, error) {
			if to, ok := p.ImportMap[path]; ok {
				path = to
			}
			if pkg := checked[path]; pkg != nil {
				return pkg, nil
			}
			return nil, fmt.Errorf("%s is not in the list", path)
		})}
		if ours {
			config.Error = func(err error) { t.Error(err) }
		}
		var err error
		if checked[p.ImportPath], err = config.Check(p.ImportPath, files, syntax, nil); err != nil && !ours {
			t.Fatal(err)
		}
	}
	if checked[module+"/cmd/nixbench"] == nil {
		t.Error("the program was not checked")
	}
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
