package hostkeys

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

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
			if got[i], err = known.read(files, false); err != nil {
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
	knownFile(t, file, "one", "two")
	for _, again := range []bool{false, true} {
		if k, err := known.read(files, again); err != nil || k.knows("two") != again {
			t.Errorf("read again: %t: %v", again, err)
		}
	}
	other, err := known.read([]string{file + "2"}, false)
	if err != nil || other == got[0] || other.knows("one") {
		t.Errorf("another list of files gives %+v, %v", other, err)
	}
}

// Lines that cannot be read are skipped.
func TestUnreadableKnownHosts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "known_hosts")
	knownFile(t, file, "one", "|1|bad|hash", "@unknown two", "three")
	k, err := readKnownHosts([]string{file})
	if err != nil || !k.knows("one") || !k.knows("three") || k.knows("two") {
		t.Errorf("%+v, %v", k, err)
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
