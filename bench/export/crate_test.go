package export

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench"
)

var publication = Publication{Author: "Ada Lovelace <https://orcid.org/0000-0002-1825-0097>", License: "https://creativecommons.org/licenses/by/4.0/"}

// newCrate returns the metadata of an archive with these files.
func newCrate(t *testing.T, p Publication, files ...string) []byte {
	t.Helper()
	e := example()
	e.sweep.Configurations = make([]bench.Configuration, 2)
	e.attempts[4][0].Ended = time.Unix(1_800_004_000, 0)
	var archived []bench.ArchivedFile
	for _, name := range files {
		archived = append(archived, bench.ArchivedFile{Path: name, Size: 1, SHA256: "00"})
	}
	data, err := Crate(e.sweep, e.attempts, archived, p)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The metadata have what RO-Crate 1.1 and Process Run Crate require, and each reference leads to an entity.
func TestCrate(t *testing.T) {
	for _, p := range []Publication{publication, {Author: "Ada Lovelace", License: publication.License}} {
		data := newCrate(t, p, "sweep.json", "source/a b#1.nix", "trials/1/1/result.json", "trials/1/1/x:y")
		var crate struct {
			Graph []map[string]any `json:"@graph"`
		}
		if err := json.Unmarshal(data, &crate); err != nil {
			t.Fatal(err)
		}
		entities := map[any]map[string]any{}
		for _, e := range crate.Graph {
			if entities[e["@id"]] != nil {
				t.Errorf("there are two entities %v", e["@id"])
			}
			entities[e["@id"]] = e
		}
		var check func(v any)
		check = func(v any) {
			switch v := v.(type) {
			case []any:
				for _, one := range v {
					check(one)
				}
			case map[string]any:
				if entities[v["@id"]] == nil && v["@id"] != "https://w3id.org/ro/crate/1.1" {
					t.Errorf("there is no entity %v", v)
				}
			}
		}
		byType := map[any]map[string]any{}
		for _, e := range crate.Graph {
			for _, v := range e {
				check(v)
			}
			byType[e["@type"]] = e
		}
		for kind, properties := range map[string][]string{
			"Dataset":             {"name", "description", "datePublished", "license", "author", "hasPart", "mentions", "conformsTo"},
			"CreateAction":        {"name", "instrument", "agent", "object", "result", "startTime", "endTime"},
			"SoftwareApplication": {"name", "url", "version"}, "Person": {"name"}, "File": {"name", "sha256", "contentSize"},
		} {
			for _, property := range properties {
				if v := byType[kind][property]; v == nil || v == "" {
					t.Errorf("the entity %s has no %s: %s", kind, property, data)
				}
			}
		}
		if action := byType["CreateAction"]; len(action["object"].([]any)) != 2 || len(action["result"].([]any)) != 2 || action["endTime"] != "2027-01-15T09:06:40+00:00" {
			t.Errorf("the action is %v", action)
		}
	}
}

// An author and a license are complete.
func TestPublication(t *testing.T) {
	for p, valid := range map[Publication]bool{
		publication:                           true,
		{"Ada", publication.License}:          true,
		{"", publication.License}:             false,
		{"<http://x.y>", publication.License}: false,
		{"Ada <x>", publication.License}:      false,
		{"Ada", ""}:                           false,
		{"Ada", "MIT"}:                        false,
	} {
		if err := p.Check(); (err == nil) != valid {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// The validator of RO-Crates accepts the archive as a Process Run Crate. It reads the vocabulary of RO-Crates from the internet.
func TestCrateIsValid(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") != "1" {
		t.Skip("the test installs roc-validator from PyPI; make e2e-all runs it")
	}
	client := http.Client{Timeout: 30 * time.Second}
	if r, err := client.Get("https://w3id.org/ro/crate/1.1/context"); err != nil {
		t.Skipf("the vocabulary of RO-Crates cannot be read: %v", err)
	} else {
		r.Body.Close()
	}
	venv := filepath.Join(t.TempDir(), "venv")
	for _, argv := range [][]string{{"python3", "-m", "venv", venv}, {filepath.Join(venv, "bin", "pip"), "install", "--quiet", "roc-validator==0.13.0"}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("roc-validator cannot be installed: %v\n%s", err, out)
		}
	}
	folder := t.TempDir()
	files := []string{"sweep.json", "source/a b#1.nix", "trials/1/1/result.json"}
	for _, name := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []Publication{publication, {Author: "Ada Lovelace", License: publication.License}} {
		if err := os.WriteFile(filepath.Join(folder, "ro-crate-metadata.json"), newCrate(t, p, files...), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(filepath.Join(venv, "bin", "rocrate-validator"), "-y", "validate", "--profile-identifier", "process-run-crate", "--verbose", "--no-paging", folder).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
