package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// program is a program with the commands of nixbench that a release runs.
const program = `package main

import ("fmt"; "os"; "path/filepath")

var version, commit string

func main() {
	switch os.Args[1] {
	case "man":
		dir := os.Args[2]
		if err := os.MkdirAll(dir, 0o755); err != nil { panic(err) }
		if err := os.WriteFile(filepath.Join(dir, "nixbench.1"), []byte("manual\n"), 0o644); err != nil { panic(err) }
	case "completion":
		fmt.Println("completion for", os.Args[2])
	case "version":
		fmt.Println(version, commit)
	}
}
`

// checkout is a git repository that is ready for a release of v1.2.0.
type checkout struct {
	*testing.T
	dir string
}

func newCheckout(t *testing.T) checkout {
	t.Helper()
	c := checkout{t, t.TempDir()}
	for name, text := range map[string]string{
		"go.mod": "module example.org/nixbench\n\ngo 1.26.0\n", "cmd/nixbench/main.go": program,
		"CHANGELOG.md": "# Changes\n\n## 1.2.0, 2026-11-23\n\n- New.\n", "package.nix": `{ version ? "1.2.0" }: version` + "\n",
		"README.md": "Read this.\n", "LICENSE": "Free.\n",
	} {
		c.write(name, text)
	}
	c.git("init", "-q", "-b", "main")
	c.commit()
	c.git("tag", "v1.2.0")
	return c
}

func (c checkout) write(name, text string) {
	c.Helper()
	file := filepath.Join(c.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		c.Fatal(err)
	}
}

func (c checkout) commit() {
	c.Helper()
	c.git("add", ".")
	c.git("commit", "-q", "-m", "change")
}

func (c checkout) git(args ...string) {
	c.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=t",
		"GIT_COMMITTER_EMAIL=t@example.org", "GIT_COMMITTER_DATE=2026-11-23T10:00:00Z")
	if out, err := cmd.CombinedOutput(); err != nil {
		c.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// unpack returns the files of a compressed tar archive.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(data)
	}
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRelease(t *testing.T) {
	c := newCheckout(t)
	out := filepath.Join(t.TempDir(), "dist", "v1.2.0")
	here := platform{runtime.GOOS, runtime.GOARCH}
	t.Chdir(c.dir)
	args := []string{"--output", out, "--platform", here.String(), "v1.2.0"}
	if err := run(t.Context(), args, io.Discard); err != nil {
		t.Fatal(err)
	}
	name := "nixbench-v1.2.0-" + here.String()
	archive := unpack(t, read(t, out, name+".tar.gz"))
	for file, want := range map[string]string{
		"share/man/man1/nixbench.1": "manual\n", "share/doc/nixbench/LICENSE": "Free.\n", "share/doc/nixbench/CHANGELOG.md": "# Changes",
		"share/doc/nixbench/README.md":                  "Read this.",
		"share/bash-completion/completions/nixbench":    "completion for bash",
		"share/zsh/site-functions/_nixbench":            "completion for zsh",
		"share/fish/vendor_completions.d/nixbench.fish": "completion for fish",
	} {
		if !strings.HasPrefix(archive[name+"/"+file], want) {
			t.Errorf("%s: %q", file, archive[name+"/"+file])
		}
	}
	if len(archive) != 8 {
		t.Errorf("%d files", len(archive))
	}
	binary := filepath.Join(t.TempDir(), "nixbench")
	if err := os.WriteFile(binary, []byte(archive[name+"/bin/nixbench"]), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := exec.Command(binary, "version").Output(); err != nil || !strings.HasPrefix(string(got), "v1.2.0 ") || len(got) != len("v1.2.0 123456789012\n") {
		t.Errorf("%q, %v", got, err)
	}
	if files := unpack(t, read(t, out, "nixbench-v1.2.0-source.tar.gz")); files["nixbench-v1.2.0/cmd/nixbench/main.go"] != program {
		t.Errorf("the source archive has %d files", len(files))
	}
	sums := string(read(t, out, "SHA256SUMS"))
	for _, file := range []string{name + ".tar.gz", name + ".cdx.json", "nixbench-v1.2.0-source.tar.gz"} {
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(read(t, out, file)), file); !strings.Contains(sums, line) {
			t.Errorf("SHA256SUMS lacks %q:\n%s", line, sums)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(out)); len(left) != 1 {
		t.Errorf("files are left: %v", left)
	}
	if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), out+" exists") {
		t.Errorf("a second run: %v", err)
	}
}

// The configuration of git does not change the source archive.
func TestSourceArchive(t *testing.T) {
	c := newCheckout(t)
	s, err := checkSource(t.Context(), c.dir, "v1.2.0")
	if err != nil {
		t.Fatal(err)
	}
	want, err := s.sourceArchive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	attributes := filepath.Join(t.TempDir(), "attributes")
	if err := os.WriteFile(attributes, []byte("LICENSE export-ignore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"tar.umask": "0077", "core.autocrlf": "true", "core.attributesFile": attributes} {
		c.git("config", name, value)
		if got, err := s.sourceArchive(t.Context()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the archive differs with %s=%s: %v", name, value, err)
		}
		c.git("config", "--unset", name)
	}
}

func TestRefusedReleases(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(checkout)
		version string
		want    string
	}{
		"no version": {version: "1.2.0", want: `"1.2.0" is no version`},
		"a new file": {func(c checkout) { c.write("new", "") }, "v1.2.0", "the checkout has changes; commit or remove them:\n?? new"},
		"a new file that git status leaves out": {func(c checkout) {
			c.git("config", "status.showUntrackedFiles", "no")
			c.write("cmd/nixbench/other.go", "package main")
		}, "v1.2.0", "the checkout has changes; commit or remove them:\n?? cmd/nixbench/other.go"},
		"a changed file":     {func(c checkout) { c.write("README.md", "") }, "v1.2.0", "the checkout has changes"},
		"no tag":             {version: "v1.3.0", want: "there is no tag v1.3.0"},
		"a commit after it":  {func(c checkout) { c.write("new", ""); c.commit() }, "v1.2.0", "the tag v1.2.0 is commit "},
		"not in the changes": {func(c checkout) { c.git("tag", "v1.2.1") }, "v1.2.1", "CHANGELOG.md has no line with ## 1.2.1, YYYY-MM-DD"},
		"no date": {func(c checkout) {
			c.write("CHANGELOG.md", "## 1.3.0, not released yet\n")
			c.commit()
			c.git("tag", "v1.3.0")
		}, "v1.3.0", "CHANGELOG.md has no line with ## 1.3.0, YYYY-MM-DD"},
		"another package": {func(c checkout) {
			c.write("CHANGELOG.md", "## 1.3.0, 2026-11-23\n")
			c.commit()
			c.git("tag", "v1.3.0")
		}, "v1.3.0", `package.nix has no line with version ? "1.3.0"`},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t)
			if tc.prepare != nil {
				tc.prepare(c)
			}
			if _, err := checkSource(t.Context(), c.dir, tc.version); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
	if err := run(t.Context(), []string{"--platform", "plan9-386", "v1.2.0"}, io.Discard); err == nil || !strings.Contains(err.Error(), "only linux-amd64, linux-arm64, darwin-amd64, darwin-arm64") {
		t.Error(err)
	}
	if err := run(t.Context(), nil, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}
