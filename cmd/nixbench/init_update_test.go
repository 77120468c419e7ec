package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/modules"
)

// A cluster's name is a valid part of the names of machines and networks, and its range does not overlap with those of pods
// and services.
func TestNewClusterNames(t *testing.T) {
	for dir, want := range map[string]string{
		"/srv/Prod_1": "prod-1", "/": "cluster", "/srv/…": "cluster", "/a/.hidden.": "hidden",
		"/" + strings.Repeat("x", 31) + "-y": strings.Repeat("x", 31), "/a/cluster/": "cluster",
	} {
		if got, err := clusterNameOf(dir); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", dir, got, err, want)
		}
	}
	ranges := map[string]bool{}
	for _, name := range []string{"cluster", "red", "blue", "prod", "staging", "test", "lab", "a", "b"} {
		cidr := networkRangeOf(name)
		if cidr < "10.128." || cidr > "10.239.255.0/24" || ranges[cidr] || networkRangeOf(name) != cidr {
			t.Errorf("%s: %s", name, cidr)
		}
		ranges[cidr] = true
	}
}

// An update that was interrupted after some files, or before the record was written, is completed by the next one.
func TestInterruptedModuleUpdate(t *testing.T) {
	folder := t.TempDir()
	older := moduleCopies{Version: "0.0.1", Digest: "older", Files: modules.Sums{}}
	for path := range ownSums(t) {
		content := []byte("# an older " + path + "\n")
		older.Files[path] = modules.Sum(content)
		file := filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := planModuleUpdate(folder, older)
	if err != nil || len(whole.write) != len(older.Files) || len(whole.kept) > 0 {
		t.Fatalf("%+v, %v", whole, err)
	}
	for _, done := range []int{0, 1, len(whole.write) - 1, len(whole.write)} {
		for _, path := range whole.write[:done] {
			content, err := modules.Files.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, path), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		rest, err := planModuleUpdate(folder, older) // the record is written last, so it is still the old one
		if err != nil || !slices.Equal(rest.write, whole.write[done:]) || len(rest.kept) > 0 {
			t.Errorf("after %d files: %+v, %v", done, rest, err)
		}
	}
	if err := whole.apply(folder); err != nil {
		t.Fatal(err)
	}
	recorded, err := readModuleCopies(folder)
	if err != nil || recorded.Digest != ownSums(t).Digest() {
		t.Errorf("recorded: %+v, %v", recorded, err)
	}
	if equal, err := ownSums(t).Equal(os.DirFS(folder)); !equal || err != nil {
		t.Errorf("the folder differs: %v", err)
	}
	if entries, err := filepath.Glob(filepath.Join(folder, ".*")); err != nil || len(entries) != 1 {
		t.Errorf("left: %q, %v", entries, err)
	}
}

func ownSums(t *testing.T) modules.Sums {
	t.Helper()
	sums, err := modules.OwnSums()
	if err != nil {
		t.Fatal(err)
	}
	return sums
}
