package secrets

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
)

func late(k *nixeval.Key) { k.UploadAt = "post-activation" }

func mode(m string) func(*nixeval.Key) { return func(k *nixeval.Key) { k.Permissions = m } }

func TestUpload(t *testing.T) {
	n := start(t, sshtest.Options{})
	ks := keys{"a": n.key(t, "a", "first"), "b": n.key(t, "b", "second", mode("0440")), "c": n.key(t, "c", "third", late)}

	want := Result{Uploaded: []string{"a", "b"}}
	got, err := n.Plan(t.Context(), n.host, n.load(t, ks, Pre))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("the plan: %v\n%s", err, diff)
	}
	if files := n.files(t); len(files) != 0 {
		t.Errorf("the plan left %q", files)
	}
	if diff := cmp.Diff(want, n.upload(t, ks, Pre)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Result{Uploaded: []string{"c"}}, n.upload(t, ks, Post)); diff != "" {
		t.Error(diff)
	}
	files := map[string]string{"keys/a": "600 first", "keys/b": "440 second", "keys/c": "600 third"}
	if diff := cmp.Diff(files, n.files(t)); diff != "" {
		t.Error(diff)
	}

	if info, err := os.Stat(ks["a"].Path); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("the time of a new key: %v, %v", info.ModTime(), err)
	}

	commands := n.server.Commands()
	if diff := cmp.Diff(Result{Unchanged: []string{"a", "b", "c"}}, n.upload(t, ks, All)); diff != "" {
		t.Errorf("a second upload: %s", diff)
	}
	if got := n.server.Commands() - commands; got != 1 {
		t.Errorf("%d commands for one node", got)
	}

	ks["a"], ks["b"] = n.key(t, "a", "changed"), n.key(t, "b", "second", mode("0400"))
	if diff := cmp.Diff(Result{Uploaded: []string{"a"}, Adjusted: []string{"b"}, Unchanged: []string{"c"}}, n.upload(t, ks, All)); diff != "" {
		t.Error(diff)
	}
	files = map[string]string{"keys/a": "600 changed", "keys/b": "400 second", "keys/c": "600 third"}
	if diff := cmp.Diff(files, n.files(t)); diff != "" {
		t.Error(diff)
	}
}

// A unit that has read another key than the one on the disk is restarted, also if an earlier run was killed before the
// restart. An upload before a switch does not restart it. The key of a unit that has read it may be repaired without a restart.
func TestRestart(t *testing.T) {
	n := start(t, sshtest.Options{})
	ks := keys{"a": n.key(t, "a", "good")}
	n.upload(t, ks, All)
	read := func(content string) {
		t.Helper()
		at := filepath.Join(n.dir, "var/readers/nixbench-absent.service")
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, fmt.Appendf(nil, "%x  %s\n", sha256.Sum256([]byte(content)), ks["a"].Path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		read, onDisk string
		restart      bool // whether the upload may restart units
		want         bool // whether it does
	}{{"bad", "bad", true, true}, {"bad", "good", true, true}, {"good", "bad", true, false}, {"good", "good", true, false}, {"bad", "bad", false, false}} {
		read(test.read)
		if err := os.WriteFile(ks["a"].Path, []byte(test.onDisk), 0o600); err != nil {
			t.Fatal(err)
		}
		set := n.load(t, ks, All)
		set.Restart = test.restart
		_, err := n.Upload(t.Context(), n.host, set)
		if failed := err != nil && strings.Contains(err.Error(), "the units that read them cannot be restarted: "); failed != test.want || err != nil && !failed { // there is no unit nixbench-absent.service
			t.Errorf("%+v: %v", test, err)
		}
		plan, err := n.Plan(t.Context(), n.host, set)
		if got := slices.Equal(plan.Restarted, []string{"nixbench-absent.service"}); got != test.want || err != nil {
			t.Errorf("the plan of %+v: %+v, %v", test, plan, err)
		}
	}
}

func TestNumericOwner(t *testing.T) {
	n := start(t, sshtest.Options{})
	ks := keys{"a": n.key(t, "a", "x", func(k *nixeval.Key) {
		k.User, k.Group, k.Permissions = strconv.Itoa(os.Getuid()), strconv.Itoa(os.Getgid()), "00400"
	})}
	if got := n.upload(t, ks, All); len(got.Uploaded) != 1 || len(got.Deferred) != 0 {
		t.Errorf("%+v", got)
	}
	if got := n.upload(t, ks, All); len(got.Unchanged) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestRemoval(t *testing.T) {
	n := start(t, sshtest.Options{})
	at := func(name string) string { return filepath.Join(n.dir, "run/keys", name) }
	n.upload(t, keys{"a": n.key(t, "a", "1"), "b": n.key(t, "b", "2"), "m": n.key(t, "m", "3")}, All)
	if err := os.WriteFile(at("theirs"), []byte("not ours"), 0o600); err != nil {
		t.Fatal(err)
	}

	// The hive drops b and moves m.
	ks := keys{"a": n.key(t, "a", "1"), "m": n.key(t, "moved here", "3")}
	want := Result{Uploaded: []string{"m"}, Unchanged: []string{"a"}, Stale: []string{at("b"), at("m")}}
	if diff := cmp.Diff(want, n.upload(t, ks, Pre)); diff != "" {
		t.Errorf("before activation: %s", diff)
	}
	if files := n.files(t); len(files) != 5 {
		t.Errorf("before activation there are %q", files)
	}
	plan, err := n.Plan(t.Context(), n.host, n.load(t, ks, All))
	if diff := cmp.Diff(Result{Unchanged: []string{"a", "m"}, Stale: want.Stale}, plan); diff != "" || err != nil {
		t.Errorf("the plan: %v\n%s", err, diff)
	}
	if diff := cmp.Diff(Result{Stale: want.Stale, Removed: want.Stale}, n.upload(t, ks, Post)); diff != "" {
		t.Errorf("after activation: %s", diff)
	}
	files := map[string]string{"keys/a": "600 1", "keys/moved here": "600 3", "keys/theirs": "600 not ours"}
	if diff := cmp.Diff(files, n.files(t)); diff != "" {
		t.Error(diff)
	}
	n.upload(t, keys{}, All)
	if diff := cmp.Diff(map[string]string{"keys/theirs": "600 not ours"}, n.files(t)); diff != "" {
		t.Error(diff)
	}
	if got := n.upload(t, keys{}, All); got.Changes() {
		t.Errorf("an empty hive changes %+v", got)
	}
}

// A key that another tool has uploaded is not sent again if nothing differs. From then on it is one of our keys.
func TestKeysOfAnotherTool(t *testing.T) {
	n := start(t, sshtest.Options{})
	noUser := func(k *nixeval.Key) { k.User = "nixbench-nobody" }
	ks := keys{
		"same": n.key(t, "same", "1", mode("0440")), "mode": n.key(t, "mode", "2"), "content": n.key(t, "content", "3"),
		"link": n.key(t, "link", "4"), "deferred": n.key(t, "deferred", "5", noUser),
	}
	dir := filepath.Join(n.dir, "run/keys")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]struct {
		text string
		mode os.FileMode
	}{"same": {"1", 0o440}, "mode": {"2", 0o644}, "content": {"other", 0o600}, "target": {"4", 0o600}, "deferred": {"5", 0o600}} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(k.text), k.mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("target", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(dir, "same"))
	if err != nil {
		t.Fatal(err)
	}
	want := Result{Uploaded: []string{"content", "deferred", "link", "mode"}, Unchanged: []string{"same"}, Deferred: []string{"deferred"}}
	plan, err := n.Plan(t.Context(), n.host, n.load(t, ks, All))
	if diff := cmp.Diff(want, plan); diff != "" || err != nil {
		t.Errorf("the plan: %v\n%s", err, diff)
	}
	if _, err := os.Stat(filepath.Join(n.dir, "var/list")); err == nil {
		t.Error("the plan has written the list")
	}
	if diff := cmp.Diff(want, n.upload(t, ks, All)); diff != "" {
		t.Error(diff)
	}
	if after, err := os.Stat(filepath.Join(dir, "same")); err != nil || !os.SameFile(before, after) {
		t.Errorf("the key was replaced: %v", err)
	}
	files := map[string]string{"keys/same": "440 1", "keys/mode": "600 2", "keys/content": "600 3", "keys/link": "600 4", "keys/deferred": "600 5", "keys/target": "600 4"}
	if diff := cmp.Diff(files, n.files(t)); diff != "" {
		t.Error(diff)
	}

	// Only the list changes.
	if err := os.Remove(filepath.Join(n.dir, "var/list")); err != nil {
		t.Fatal(err)
	}
	delete(ks, "deferred")
	if got := n.upload(t, ks, Pre); got.Changes() || len(got.Unchanged) != 4 {
		t.Errorf("%+v", got)
	}
	if got := n.upload(t, keys{}, All); len(got.Removed) != 4 {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(map[string]string{"keys/target": "600 4", "keys/deferred": "600 5"}, n.files(t)); diff != "" {
		t.Error(diff)
	}
}

// After a failed upload, the list contains the keys that nixbench has written, and not a file of another tool.
func TestListAfterFailure(t *testing.T) {
	n := start(t, sshtest.Options{})
	late := func(k *nixeval.Key) { k.User, k.UploadAt = "nixbench-nobody", "post-activation" }
	n.upload(t, keys{"old": n.key(t, "old", "1")}, All)
	at := filepath.Join(n.dir, "run/keys/theirs")
	if err := os.WriteFile(at, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	ks := keys{"old": n.key(t, "old", "1"), "new": n.key(t, "new", "2"), "theirs": n.key(t, "theirs", "3", late)}
	if _, err := n.Upload(t.Context(), n.host, n.load(t, ks, All)); err == nil {
		t.Error("no error")
	}
	if got := n.upload(t, keys{}, All); len(got.Removed) != 2 {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(map[string]string{"keys/theirs": "600 theirs"}, n.files(t)); diff != "" {
		t.Error(diff)
	}
}

// On NixOS sh is bash, on other systems dash.
func TestHostile(t *testing.T) {
	for _, shell := range []string{"bash", "dash"} {
		t.Run(shell, func(t *testing.T) {
			program, err := exec.LookPath(shell)
			if err != nil {
				t.Skip(err)
			}
			dir := t.TempDir()
			if err := os.Symlink(program, filepath.Join(dir, "sh")); err != nil {
				t.Fatal(err)
			}
			testHostile(t, start(t, sshtest.Options{Env: append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))}))
		})
	}
}

func testHostile(t *testing.T, n *node) {
	ks := keys{}
	for i, name := range []string{"-rf", "two words", "it's", `"quoted"`, "$(touch pwned)", "`x`", "*", "schlüssel-鍵", "a\\b", "%n", "#", "~", "send 1"} {
		ks[name] = n.key(t, name, strings.Repeat(name, i))
	}
	contents := map[string]string{
		"empty": "", "newlines": "\n\na\n\n", "nul": "a\x00b\x00", "lines": "prune\n0\nend\n",
		"binary": "\xff\xfe\x00\x01\r\n", "big": strings.Repeat("0123456789abcde\n", 1<<16),
	}
	source := t.TempDir()
	for name, text := range contents {
		file := filepath.Join(source, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ks[name] = n.key(t, name, "", func(k *nixeval.Key) {
			k.Text, k.KeyFile = nil, &file
			k.DestDir = filepath.Join(n.dir, "run", "-odd dir's $HOME")
		})
	}
	if got := n.upload(t, ks, All); len(got.Uploaded) != len(ks) {
		t.Errorf("%+v", got)
	}
	if got := n.upload(t, ks, All); len(got.Unchanged) != len(ks) {
		t.Errorf("the second time: %+v", got)
	}
	files := n.files(t)
	for name, k := range ks {
		want, ok := contents[name]
		if !ok {
			want = k.Text.Reveal()
		}
		if got := files[strings.TrimPrefix(k.Path, n.dir+"/run/")]; got != "600 "+want {
			t.Errorf("%q has %.80q, want %.80q", name, got, want)
		}
	}
	if len(files) != len(ks) {
		t.Errorf("%d files for %d keys", len(files), len(ks))
	}
	if got := n.upload(t, keys{}, All); len(got.Removed) != len(ks) || len(n.files(t)) != 0 {
		t.Errorf("removed %q, left %q", got.Removed, n.files(t))
	}
}
