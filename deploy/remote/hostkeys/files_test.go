package hostkeys

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
)

// knownFile writes a known_hosts file that knows hosts by one key.
func knownFile(t *testing.T, file string, hosts ...string) {
	t.Helper()
	signer, err := ssh.ParsePrivateKey(sshtest.GeneratePrivateKey())
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, host := range hosts {
		text = fmt.Appendf(text, "%s %s", host, ssh.MarshalAuthorizedKey(signer.PublicKey()))
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (k *knownKeys) knows(host string) bool { return len(k.db.HostKeys(host+":22")) > 0 }

// Concurrent and later callers share one parse.
func TestKnownHostsAreReadOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "known_hosts")
	knownFile(t, file, "one")
	files := []string{file, file + "2"} // the second does not exist
	known := &KnownHosts{}
	got := make([]*knownKeys, 20)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			var err error
			if got[i], err = known.read(files); err != nil {
				t.Error(err)
			} else if !got[i].knows("one") {
				t.Error("one is not known")
			}
		})
	}
	all.Wait()
	if slices.ContainsFunc(got, func(k *knownKeys) bool { return k != got[0] }) {
		t.Error("the file was read more than once")
	}
	other, err := known.read([]string{file + "2"})
	if err != nil || other == got[0] || other.knows("one") {
		t.Errorf("another list of files gives %+v, %v", other, err)
	}
}

// Whatever way a file is changed, it is read again.
func TestChangedKnownHostsAreReadAgain(t *testing.T) {
	old := time.Now().Add(-time.Hour)
	for name, change := range map[string]func(file string){
		"appended to": func(file string) {
			knownFile(t, file, "one", "two")
			os.Chtimes(file, old, old)
		},
		"same size": func(file string) { knownFile(t, file, "two") },
		"replaced, with size and time": func(file string) {
			knownFile(t, file+".new", "two")
			os.Chtimes(file+".new", old, old)
			os.Rename(file+".new", file)
		},
		"made": func(file string) { knownFile(t, file+"2", "two") },
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "known_hosts")
			knownFile(t, file, "one")
			os.Chtimes(file, old, old)
			known := &KnownHosts{}
			files := []string{file, file + "2"}
			if k, err := known.read(files); err != nil || !k.knows("one") || k.knows("two") {
				t.Fatalf("at first: %v", err)
			}
			change(file)
			if k, err := known.read(files); err != nil || !k.knows("two") {
				t.Errorf("two is not known: %v", err)
			}
		})
	}
	t.Run("removed", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "known_hosts")
		knownFile(t, file, "one")
		known := &KnownHosts{}
		if _, err := known.read([]string{file}); err != nil {
			t.Fatal(err)
		}
		os.Remove(file)
		if k, err := known.read([]string{file}); err != nil || k.knows("one") {
			t.Errorf("one is known still: %v", err)
		}
	})
}

// Lines that cannot be read are reported and skipped.
func TestUnreadableKnownHosts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "known_hosts")
	knownFile(t, file, "one", "|1|bad|hash", "@unknown two", "three")
	var warnings []string
	known := KnownHosts{Send: func(e event.Event) { warnings = append(warnings, e.Text) }}
	for range 2 {
		k, err := known.read([]string{file})
		if err != nil || !k.knows("one") || !k.knows("three") || k.knows("two") {
			t.Errorf("%+v, %v", k, err)
		}
	}
	if want := []string{file + ": lines that cannot be read are skipped, as by OpenSSH: 2, 3"}; !slices.Equal(warnings, want) {
		t.Errorf("%q, want %q", warnings, want)
	}
}

// No line makes the others unreadable.
func FuzzKnownHosts(f *testing.F) {
	for _, line := range []string{"", "host ssh-ed25519 AAAA", "|1|a|b ssh-rsa x", "@revoked * x", "[host", "!"} {
		f.Add([]byte(line))
	}
	signer, err := ssh.ParsePrivateKey(sshtest.GeneratePrivateKey())
	if err != nil {
		f.Fatal(err)
	}
	line := fmt.Appendf([]byte("\none "), "%s", ssh.MarshalAuthorizedKey(signer.PublicKey()))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "known_hosts")
		if err := os.WriteFile(file, append(data, line...), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := readKnownHosts([]string{file})
		if err != nil || !k.knows("one") {
			t.Errorf("%q: %v", data, err)
		}
	})
}
