package main

import (
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestProgram builds nixbench for this platform, twice and in two folders: both programs have the same bytes. It checks the
// program and its SBOM.
func TestProgram(t *testing.T) {
	here, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	there := t.TempDir()
	for _, name := range []string{"cmd", "deploy", "internal", "modules", "nixeval", "templates"} {
		if err := os.CopyFS(filepath.Join(there, name), os.DirFS(filepath.Join(here, name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := os.WriteFile(filepath.Join(there, name), read(t, here, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var programs, boms, archives []string
	out := t.TempDir()
	for i, dir := range []string{here, there} {
		if dir == there { // settings of the computer change nothing
			settings := filepath.Join(t.TempDir(), "env") // as go env -w writes it
			if err := os.WriteFile(settings, []byte("GOFLAGS=-tags=netgo\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			t.Setenv("GOENV", settings)
			t.Setenv("GOFIPS140", "latest")
		}
		s := &source{dir: dir, version: "v1.2.3", commit: strings.Repeat("0123456789", 4), time: time.Unix(1795400000, 0).UTC()}
		to := filepath.Join(out, string(rune('a'+i)))
		if err := s.compile(t.Context(), platform{runtime.GOOS, runtime.GOARCH}, to); err != nil {
			t.Fatal(err)
		}
		data := read(t, out, filepath.Base(to))
		bom, err := s.sbom(to, data)
		if err != nil {
			t.Fatal(err)
		}
		archive, err := s.tarball("nixbench", []file{{"bin/nixbench", 0o755, data}})
		if err != nil {
			t.Fatal(err)
		}
		programs, boms, archives = append(programs, string(data)), append(boms, string(bom)), append(archives, string(archive))
	}
	if programs[0] != programs[1] || boms[0] != boms[1] || archives[0] != archives[1] {
		t.Error("two builds differ")
	}
	if strings.Contains(programs[0], here) {
		t.Errorf("the program contains the path %s", here)
	}
	version, err := exec.Command(filepath.Join(out, "a"), "version").Output()
	if want := "nixbench v1.2.3 (012345678901) " + runtime.Version() + ", without libvirt: it deploys to existing machines and creates none\n"; err != nil || string(version) != want {
		t.Errorf("%q, %v, want %q", version, err, want)
	}
	if runtime.GOOS == "linux" {
		f, err := elf.Open(filepath.Join(out, "a"))
		if err != nil {
			t.Fatal(err)
		}
		if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 || f.Section(".interp") != nil {
			t.Errorf("the program is not static: %v, %v", libraries, err)
		}
	}
	checkSBOM(t, boms[0])
}

// checkSBOM checks what the JSON Schema of CycloneDX 1.5 requires of the fields that we write, and that the modules are
// those of go.mod.
func checkSBOM(t *testing.T, text string) {
	t.Helper()
	var b struct {
		Format   string `json:"bomFormat"`
		Spec     string `json:"specVersion"`
		Serial   string `json:"serialNumber"`
		Version  int    `json:"version"`
		Metadata struct {
			Timestamp time.Time
			Component map[string]any
		}
		Components   []map[string]any
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.Spec != "1.5" || b.Version != 1 || b.Metadata.Timestamp.IsZero() ||
		!regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`).MatchString(b.Serial) {
		t.Errorf("%.300s", text)
	}
	refs, names := map[string]bool{}, map[string]string{}
	for i, c := range append(b.Components, b.Metadata.Component) {
		kind, want := c["type"], "library"
		if i == len(b.Components) {
			want = "application"
		}
		ref, _ := c["bom-ref"].(string)
		name, _ := c["name"].(string)
		version, _ := c["version"].(string)
		purl, _ := c["purl"].(string)
		if kind != want || ref == "" || refs[ref] || name == "" || version == "" || !strings.HasPrefix(purl, "pkg:golang/") {
			t.Errorf("component %d: %v", i, c)
		}
		refs[ref], names[name] = true, version
	}
	if len(b.Dependencies) != 1 || len(b.Dependencies[0].DependsOn) != len(b.Components) {
		t.Errorf("dependencies: %v", b.Dependencies)
	}
	for _, d := range b.Dependencies {
		for _, ref := range append(d.DependsOn, d.Ref) {
			if !refs[ref] {
				t.Errorf("the dependency %s is no component", ref)
			}
		}
	}
	gomod := string(read(t, "../..", "go.mod"))
	for name, version := range names {
		if name != "std" && name != "github.com/nixbench/nixbench" && !strings.Contains(gomod, name+" "+version) {
			t.Errorf("go.mod does not have %s %s", name, version)
		}
	}
	for _, name := range []string{"std", "github.com/spf13/cobra", "golang.org/x/crypto", "filippo.io/age"} {
		if names[name] == "" {
			t.Errorf("there is no component %s", name)
		}
	}
	if names["libvirt.org/go/libvirt"] != "" {
		t.Error("the program contains libvirt")
	}
}
