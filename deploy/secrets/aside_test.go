package secrets

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/remote/sshtest"
)

// aside uploads keys as a run does before or after its switch.
func (n *node) aside(t *testing.T, ks keys, when When, a Aside) {
	t.Helper()
	set := n.load(t, ks, when)
	set.Aside = a
	if _, err := n.Upload(t.Context(), n.host, set); err != nil {
		t.Fatal(err)
	}
}

func (n *node) folder() string { return filepath.Join(n.dir, "var/aside") }

// is asserts the keys on the node, and whether a backup exists.
func (n *node) is(t *testing.T, want map[string]string, kept bool) {
	t.Helper()
	if diff := cmp.Diff(want, n.files(t)); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(n.folder())
	if (err == nil) != kept {
		t.Errorf("kept: %v, want %v", err == nil, kept)
	}
	if kept && info.Mode().Perm() != 0o700 {
		t.Errorf("others may look into it: %v", info.Mode())
	}
}

// rollBack restores the keys as the node does during a rollback.
func (n *node) rollBack(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("sh", n.folder()+"/restore").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestAside(t *testing.T) {
	n := start(t, sshtest.Options{})
	old := keys{"a": n.key(t, "a", "old", mode("0640")), "b": n.key(t, "b", "old"), "gone": n.key(t, "gone", "old"), "same": n.key(t, "same", "same")}
	fresh := keys{"a": n.key(t, "a", "new", mode("0600")), "b": n.key(t, "b", "old", mode("0444")), "more": n.key(t, "more", "new"), "same": n.key(t, "same", "same")}
	was := map[string]string{"keys/a": "640 old", "keys/b": "600 old", "keys/gone": "600 old", "keys/same": "600 same"}
	now := map[string]string{"keys/a": "600 new", "keys/b": "444 old", "keys/gone": "600 old", "keys/same": "600 same", "keys/more": "600 new"}
	pruned := map[string]string{"keys/a": "600 new", "keys/b": "444 old", "keys/same": "600 same", "keys/more": "600 new"}
	n.upload(t, old, All)
	list := func() string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(n.dir, "var/list"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	listed := list()
	n.is(t, was, false)

	back := func() {
		t.Helper()
		n.is(t, was, false)
		if got := list(); got != listed {
			t.Errorf("the list is %q, was %q", got, listed)
		}
	}
	t.Run("rolled back by the node", func(t *testing.T) {
		n.aside(t, fresh, Pre, Keep)
		n.is(t, now, true)
		n.rollBack(t)
		back()
	})
	t.Run("a backup of an earlier version", func(t *testing.T) {
		n.aside(t, fresh, Pre, Keep)
		marks, _ := filepath.Glob(n.folder() + "/*.path")
		for i, mark := range marks { // named by a hash
			name := strings.Repeat(strconv.Itoa(i), 64)
			if err := os.Rename(mark, filepath.Join(n.folder(), name+".path")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(strings.TrimSuffix(mark, "path")+"was", filepath.Join(n.folder(), name+".was")); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		if len(marks) != 4 {
			t.Errorf("marks: %q", marks)
		}
		n.aside(t, keys{"a": n.key(t, "a", "newer"), "extra": n.key(t, "extra", "newer")}, Pre, Keep)
		n.rollBack(t)
		back()
	})
	t.Run("the switch never came", func(t *testing.T) {
		n.aside(t, fresh, Pre, Keep)
		// Another upload, for another system: the keys of the running system stay in the backup.
		n.aside(t, keys{"a": n.key(t, "a", "newer")}, Pre, Keep)
		if err := n.EndBackup(t.Context(), "web-1", n.host, Undo); err != nil {
			t.Fatal(err)
		}
		back()
		if err := n.EndBackup(t.Context(), "web-1", n.host, Undo); err != nil {
			t.Error("a second time:", err)
		}
		back()
	})
	t.Run("nothing to do", func(t *testing.T) {
		n.aside(t, old, Pre, Keep)
		back()
	})
	t.Run("the whole run is taken back", func(t *testing.T) {
		n.aside(t, fresh, Pre, Hold)
		if err := os.WriteFile(n.folder()+"/settled", nil, 0o600); err != nil { // as the node does after the confirmation
			t.Fatal(err)
		}
		n.aside(t, fresh, Post, Add)
		n.is(t, pruned, true)
		if err := n.EndBackup(t.Context(), "web-1", n.host, Undo); err != nil {
			t.Fatal(err)
		}
		n.is(t, pruned, true) // independent of the switch
		if err := n.EndBackup(t.Context(), "web-1", n.host, Restore); err != nil {
			t.Fatal(err)
		}
		back()
	})
	t.Run("only removed after the switch", func(t *testing.T) {
		less := keys{"a": old["a"], "b": old["b"], "same": old["same"]}
		n.aside(t, less, Pre, Hold)
		n.aside(t, less, Post, Add)
		n.is(t, map[string]string{"keys/a": "640 old", "keys/b": "600 old", "keys/same": "600 same"}, true)
		if err := n.EndBackup(t.Context(), "web-1", n.host, Restore); err != nil {
			t.Fatal(err)
		}
		back()
	})
	t.Run("a killed run's", func(t *testing.T) {
		n.aside(t, fresh, Pre, Hold)
		if err := os.WriteFile(n.folder()+"/settled", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		n.aside(t, keys{"a": n.key(t, "a", "newer"), "b": fresh["b"], "more": fresh["more"], "same": old["same"]}, Pre, Keep)
		n.rollBack(t)
		n.is(t, now, false) // the keys of the last switch, not of an earlier one
		n.upload(t, old, All)
		n.is(t, was, false)
	})
	t.Run("held by a run that was killed before its switch", func(t *testing.T) {
		n.aside(t, fresh, Pre, Hold)
		if _, err := os.Stat(n.folder() + "/hold"); err != nil {
			t.Error(err)
		}
		n.aside(t, fresh, Pre, Keep)
		if _, err := os.Stat(n.folder() + "/hold"); err == nil {
			t.Error("the process is never ended")
		}
		n.rollBack(t)
		back()
	})
	t.Run("a key fails", func(t *testing.T) {
		if err := os.MkdirAll(filepath.Join(n.dir, "run/keys/folder/x"), 0o755); err != nil {
			t.Fatal(err)
		}
		set := n.load(t, keys{"a": fresh["a"], "folder": n.key(t, "folder", "x")}, Pre)
		set.Aside = Keep
		if _, err := n.Upload(t.Context(), n.host, set); err == nil {
			t.Error("no error")
		}
		back()
	})
	t.Run("no way back", func(t *testing.T) {
		n.aside(t, fresh, Pre, Keep)
		n.upload(t, fresh, Post)
		n.is(t, pruned, false)
		n.aside(t, old, Pre, Hold)
		if err := n.EndBackup(t.Context(), "web-1", n.host, Forget); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(n.folder()); err == nil {
			t.Error("it was not forgotten")
		}
	})
}

// Wherever an upload before a switch is interrupted, the old keys are restored.
func TestAsideInterrupted(t *testing.T) {
	good := start(t, sshtest.Options{})
	good.upload(t, keys{"a": good.key(t, "a", "old")}, All)
	set := good.load(t, keys{"a": good.key(t, "a", "new"), "b": good.key(t, "b", "new")}, Pre)
	set.Aside = Keep
	argv := good.scriptCommand("apply", Keep, false)
	offer := script + describeSet(set)
	archive := newArchive(set, []int{0, 1}, nil)
	whole := offer + strconv.Itoa(len(archive)) + "\n" + string(archive) + "keep\n"
	for end := len(offer); end < len(whole); end += 37 {
		cmd := exec.Command(argv[0], argv[1:]...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			in.Write([]byte(whole[:end]))
			in.Close()
		}()
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Fatalf("%d of %d bytes are enough: %s", end, len(whole), out)
		}
		good.is(t, map[string]string{"keys/a": "600 old"}, false)
	}
}
