package secrets

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
)

const nobody = 65534

// asNobody calls step again and again as the user nobody, until the returned function is called.
func asNobody(step func()) (stop func()) {
	var quit atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the thread ends with the goroutine, because it is not unlocked
		if _, _, err := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); err != 0 {
			return
		}
		for !quit.Load() {
			step()
		}
	}()
	return func() {
		quit.Store(true)
		<-ended
	}
}

// exchange exchanges two files.
func exchange(a, b string) {
	_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// A home is a folder of nobody on the node, beside a folder of root with a file that nobody must not change.
type home struct{ dir, rootDir, victim string }

func newHome(t *testing.T, n *node) home {
	t.Helper()
	h := home{dir: filepath.Join(n.dir, "home"), rootDir: filepath.Join(n.dir, "etc"), victim: filepath.Join(n.dir, "etc/k")}
	if err := os.Chmod(filepath.Dir(n.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{h.dir, h.rootDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(h.victim, []byte("of root"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(h.dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	return h
}

// lost reports whether nobody has changed the victim, and restores it.
func (h home) lost(t *testing.T) bool {
	t.Helper()
	info, err := os.Lstat(h.victim)
	text, _ := os.ReadFile(h.victim)
	lost := err != nil || info.Mode() != 0o600 || info.Sys().(*syscall.Stat_t).Uid != 0 || string(text) != "of root"
	_ = os.Remove(h.victim)
	if err := os.WriteFile(h.victim, []byte("of root"), 0o600); err != nil {
		t.Fatal(err)
	}
	return lost
}

const rounds = 20

// A user whose folder contains the folder of a key cannot lead the upload to another folder.
func TestRaceOfUpload(t *testing.T) {
	won := 0
	for range rounds {
		n := start(t, sshtest.Options{})
		h := newHome(t, n)
		dest, link := filepath.Join(h.dir, "keys"), filepath.Join(h.dir, "link")
		asNobodyOnce(t, func() error { return unix.Mkdir(dest, 0o755) })
		asNobodyOnce(t, func() error { return unix.Symlink(h.rootDir, link) })
		stop := asNobody(func() { exchange(dest, link) })
		ks := keys{"k": n.key(t, "k", "theirs", func(k *nixeval.Key) { k.User, k.Group, k.DestDir, k.Permissions = "nobody", "nogroup", dest, "0644" })}
		_, _ = n.Upload(t.Context(), n.host, n.load(t, ks, All))
		stop()
		if h.lost(t) {
			won++
		}
	}
	if won > 0 {
		t.Errorf("nobody has won %d of %d races", won, rounds)
	}
}

// A user who owns the folder of a key cannot lead the upload or the restore of the key to another file.
func TestRaceOfOwner(t *testing.T) {
	won := 0
	for range rounds {
		n := start(t, sshtest.Options{})
		h := newHome(t, n)
		owned := func(k *nixeval.Key) { k.User, k.Group, k.DestDir, k.Permissions = "nobody", "nogroup", h.dir, "0644" }
		n.upload(t, keys{"k": n.key(t, "k", "old", owned)}, All)
		set := n.load(t, keys{"k": n.key(t, "k", "new", owned)}, Pre)
		set.Aside = Keep
		link := filepath.Join(h.dir, "link")
		asNobodyOnce(t, func() error { return unix.Symlink(h.victim, link) })
		stop := asNobody(func() {
			_ = unix.Symlink(h.victim, filepath.Join(h.dir, ".k.nixbench-new"))
			exchange(link, filepath.Join(h.dir, "k"))
		})
		_, _ = n.Upload(t.Context(), n.host, set)
		_ = exec.Command("sh", n.folder()+"/restore").Run()
		stop()
		if h.lost(t) {
			won++
		}
	}
	if won > 0 {
		t.Errorf("nobody has won %d of %d races", won, rounds)
	}
}

// A user who owns the folder of a key cannot lead the script that sets owners to another file.
func TestRaceOfOwnersScript(t *testing.T) {
	n := start(t, sshtest.Options{})
	h := newHome(t, n)
	script := ownersScript(t, fmt.Sprintf(`{ k = { text = "x"; destDir = %q; user = "nobody"; group = "nogroup"; permissions = "0644"; }; }`, h.dir))
	key, link := filepath.Join(h.dir, "k"), filepath.Join(h.dir, "link")
	asNobodyOnce(t, func() error { return os.WriteFile(key, nil, 0o600) })
	asNobodyOnce(t, func() error { return os.Symlink(h.victim, link) })
	stop := asNobody(func() { exchange(key, link) })
	defer stop()
	won := 0
	for range 5 * rounds {
		_ = exec.Command("bash", "-c", script).Run()
		if h.lost(t) {
			won++
		}
	}
	if won > 0 {
		t.Errorf("nobody has won %d of %d races", won, 5*rounds)
	}
}

// asNobodyOnce calls a function as the user nobody.
func asNobodyOnce(t *testing.T, step func() error) {
	t.Helper()
	result := make(chan error)
	stop := asNobody(func() {
		if result != nil {
			result <- step()
			result = nil
		}
	})
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	stop()
}

// A key is refused if other users than root can change a folder above it, except its user the folder of the key.
func TestFolders(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(h home) error // changes folders above home/keys
		user    string
		want    string // in the error
	}{
		"the key's user owns the folder": {func(h home) error { return os.Chown(h.dir+"/keys", nobody, 0) }, "nobody", ""},
		"another user owns the folder":   {func(h home) error { return os.Chown(h.dir+"/keys", nobody, 0) }, "root", "/home/keys (nobody, 755)"},
		"the key's user owns the folder above": {func(h home) error { return os.Chown(h.dir, nobody, 0) }, "nobody",
			"/home (nobody, 755)"},
		"all users may write":             {func(h home) error { return os.Chmod(h.dir+"/keys", 0o777) }, "root", "/home/keys (root, 777)"},
		"a group may write":               {func(h home) error { return os.Chmod(h.dir, 0o775) }, "root", "/home (root, 775)"},
		"all may write, with sticky bit":  {func(h home) error { return os.Chmod(h.dir, 0o777|os.ModeSticky) }, "root", ""},
		"the folder is missing":           {func(h home) error { return os.Remove(h.dir + "/keys") }, "nobody", ""},
		"a link":                          {func(h home) error { return link(h) }, "root", "/home/keys (root, 777)"},
		"an owner who does not exist yet": {func(h home) error { return os.Chown(h.dir+"/keys", nobody, 0) }, "nixbench-nobody", "/home/keys (nobody, 755)"},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, sshtest.Options{})
			h := newHome(t, n)
			if err := os.Chown(h.dir, 0, 0); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(h.dir+"/keys", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := test.prepare(h); err != nil {
				t.Fatal(err)
			}
			key := n.key(t, "x", "x", func(k *nixeval.Key) { k.User, k.DestDir, k.Permissions = test.user, h.dir+"/keys", "0640" })
			set := n.load(t, keys{"x": key}, All)
			_, planned := n.Plan(t.Context(), n.host, set)
			_, err := n.Upload(t.Context(), n.host, set)
			for what, err := range map[string]error{"plan": planned, "upload": err} {
				if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("%s: %v, want %q", what, err, test.want)
				}
			}
			info, err := os.Stat(key.Path)
			switch {
			case test.want != "":
				if err == nil {
					t.Error("the key was written")
				}
			case err != nil:
				t.Error(err)
			case info.Mode() != 0o640 || info.Sys().(*syscall.Stat_t).Uid != map[string]uint32{"nobody": nobody}[test.user]:
				t.Errorf("the key has the mode %v and the owner %d", info.Mode(), info.Sys().(*syscall.Stat_t).Uid)
			}
		})
	}
}

// A key is neither removed nor restored if a user has got a folder above it since the upload.
func TestFolderGivenAway(t *testing.T) {
	n := start(t, sshtest.Options{})
	h := newHome(t, n)
	at := func(k *nixeval.Key) { k.DestDir = h.dir + "/keys" }
	if err := os.Chown(h.dir, 0, 0); err != nil {
		t.Fatal(err)
	}
	n.upload(t, keys{"k": n.key(t, "k", "old", at)}, All)
	n.aside(t, keys{"k": n.key(t, "k", "new", at)}, Pre, Keep)
	if err := os.Chown(h.dir, nobody, 0); err != nil {
		t.Fatal(err)
	}
	want := "/home (nobody, 755)"
	if err := n.EndBackup(t.Context(), "web-1", n.host, Undo); err == nil || !strings.Contains(err.Error(), "/home/keys/k is not restored: ") || !strings.Contains(err.Error(), want) {
		t.Errorf("restore: %v", err)
	}
	if _, err := n.Upload(t.Context(), n.host, n.load(t, keys{}, All)); err == nil || !strings.Contains(err.Error(), "remove "+h.dir+"/keys/k by hand: ") || !strings.Contains(err.Error(), want) {
		t.Errorf("removal: %v", err)
	}
	if text, err := os.ReadFile(h.dir + "/keys/k"); string(text) != "new" {
		t.Errorf("the key is %q: %v", text, err)
	}
}

func link(h home) error {
	if err := os.Remove(h.dir + "/keys"); err != nil {
		return err
	}
	return os.Symlink(h.rootDir, h.dir+"/keys")
}
