package house

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDrawing compares docs/packages.md with the packages: -update writes it.
func TestDrawing(t *testing.T) {
	file := filepath.Join(root(t), "docs", "packages.md")
	want := drawPackages(t)
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/packages.md is not what the packages are (%v); run: go test ./e2e/house -update", err)
	}
}

// goPackage is a package of the program, as `go list` reports it.
type goPackage struct {
	ImportPath, Doc string
	Imports         []string
}

// drawPackages draws which packages of the program import which. A package imports only packages of lower
// layers.
func drawPackages(t *testing.T) []byte {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Imports", "./cmd/...", "./deploy/...", "./nixeval/...", "./modules", "./templates")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]goPackage{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		p.Imports = ourImports(p.Imports)
		packages[strings.TrimPrefix(p.ImportPath, module+"/")] = p
	}
	layers := map[string]int{}
	var layerOf func(name string) int
	layerOf = func(name string) int {
		if l, known := layers[name]; known {
			return l
		}
		layer := 0
		for _, i := range packages[name].Imports {
			layer = max(layer, layerOf(i)+1)
		}
		layers[name] = layer
		return layer
	}
	for name := range packages {
		layerOf(name)
	}
	var b bytes.Buffer
	b.WriteString("# Packages\n\nWritten by `go test ./e2e/house -update`. A package imports only packages of lower layers. " +
		"Not drawn: packages of tests, and the imports of `deploy/durable` and `deploy/event`, which every package may import.\n")
	for layer := slices.Max(slices.Collect(maps.Values(layers))); layer >= 0; layer-- {
		fmt.Fprintf(&b, "\n## Layer %d\n\n", layer)
		for _, name := range slices.Sorted(maps.Keys(layers)) {
			if layers[name] != layer {
				continue
			}
			p := packages[name]
			fmt.Fprintf(&b, "- `%s`: %s\n", name, strings.TrimSuffix(p.Doc, "\n"))
			if drawn := slices.DeleteFunc(slices.Clone(p.Imports), func(i string) bool { return i == "deploy/durable" || i == "deploy/event" }); len(drawn) > 0 {
				fmt.Fprintf(&b, "  - imports %s\n", strings.Join(drawn, ", "))
			}
		}
	}
	return b.Bytes()
}

// ourImports returns the packages of this module among imports, without the module's path.
func ourImports(imports []string) []string {
	var out []string
	for _, i := range imports {
		if ours, ok := strings.CutPrefix(i, module+"/"); ok {
			out = append(out, ours)
		}
	}
	return out
}
