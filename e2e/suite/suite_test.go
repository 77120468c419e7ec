package suite

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSuites checks in the repository that each path of a subject exists, that each suite has core and deep tests, and that
// the records have the right form.
func TestSuites(t *testing.T) {
	for _, s := range All {
		for _, path := range s.Subject {
			out, err := exec.Command("git", "-C", Root(), "ls-files", "--", path).Output()
			if err != nil {
				t.Fatal(err)
			}
			if len(out) == 0 {
				t.Errorf("%s: no file has the path %s; correct the subject in e2e/suite/suite.go", s.Name, path)
			}
		}
		deep, core, err := s.ListTests(Root())
		if err != nil || len(deep) == 0 || len(core) == 0 {
			t.Errorf("%s: deep tests %q, core tests %q, %v", s.Name, deep, core, err)
		}
		if _, err := s.ReadRecord(Root()); err != nil {
			t.Error(err)
		}
	}
}

// TestChanges checks which changes of a repository require the deep tests.
func TestChanges(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-C", root, "-c", "user.name=test", "-c", "user.email=test@localhost"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	path := func(name string) string { return filepath.Join(root, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := Suite{"x", []string{"e2e/x", "modules", ":(glob)deploy/*drain*"}}
	check := func(when string, want bool) {
		t.Helper()
		if got, err := s.IsUnchanged(root); got != want || err != nil {
			t.Errorf("%s: unchanged: %v, want %v; %v", when, got, want, err)
		}
	}
	git("init", "-q")
	write("e2e/x/x_test.go", "one")
	write("modules/a.nix", "one")
	write("deploy/apply_drain.go", "one")
	write(".gitignore", "*.log\n")
	git("add", "-A")
	git("commit", "-q", "-m", "one")
	check("without a record", false)
	hash, err := s.Hash(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WriteRecord(root, hash); err != nil {
		t.Fatal(err)
	}
	check("with a record", true)
	git("add", "-A")
	git("commit", "-q", "-m", "the record")
	check("with a committed record", true)
	write("deploy/other.go", "one")
	write("modules/a.log", "ignored")
	check("with changes of other files", true)

	for _, c := range []struct {
		what       string
		change     func() error
		undoWithRm string
	}{
		{"other content", func() error { write("modules/a.nix", "two"); return nil }, ""},
		{"another mode", func() error { return os.Chmod(path("modules/a.nix"), 0o755) }, ""},
		{"a deleted file", func() error { return os.Remove(path("modules/a.nix")) }, ""},
		{"a renamed file", func() error { return os.Rename(path("modules/a.nix"), path("modules/b.nix")) }, "modules/b.nix"},
		{"a new file", func() error { write("e2e/x/y_test.go", ""); return nil }, "e2e/x/y_test.go"},
		{"a file of a pattern", func() error { write("deploy/apply_drain.go", "two"); return nil }, ""},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		check(c.what, false)
		if c.undoWithRm != "" {
			if err := os.Remove(path(c.undoWithRm)); err != nil {
				t.Fatal(err)
			}
		}
		git("checkout", "-q", "--", ".")
		check("after "+c.what, true)
	}

	for _, text := range []string{"", hash, hash + "\n\n", "sha256:0\n", "passed\n"} {
		write("e2e/x/verified", text)
		if unchanged, err := s.IsUnchanged(root); err == nil || unchanged || !strings.Contains(err.Error(), "make e2e-deep SUITES=x") {
			t.Errorf("a record %q: %v, %v", text, unchanged, err)
		}
	}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name, e2e, deep string
		unchanged       bool
		want            string // part of the reason
	}{
		{"kubernetes", "", "", false, "needs NIXBENCH_E2E=1"},
		{"kubernetes", "1", "", true, ""},
		{"kubernetes", "1", "all", true, ""},
		{"kubernetes", "1", "changed", false, ""},
		{"kubernetes", "1", "changed", true, "make e2e-deep SUITES=kubernetes"},
		{"provision", "1", "changed", true, "make e2e-deep SUITES=provision"},
	} {
		env := map[string]string{"NIXBENCH_E2E": c.e2e, "NIXBENCH_DEEP": c.deep}
		reason, err := decide(c.name, func(name string) string { return env[name] }, func(string) (bool, error) { return c.unchanged, nil })
		if err != nil || (reason == "") != (c.want == "") || !strings.Contains(reason, c.want) {
			t.Errorf("%+v: %q, %v", c, reason, err)
		}
	}
	if _, err := decide("deploy", os.Getenv, nil); err == nil || !strings.Contains(err.Error(), "there are kubernetes, provision") {
		t.Errorf("a suite without deep tests: %v", err)
	}
}
