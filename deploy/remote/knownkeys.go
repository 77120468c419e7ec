package remote

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/durable"
)

// KnownHosts keeps what known_hosts files say, so that a thousand connections read
// a file of a thousand lines once. A file that has changed is read again. Give the
// same one to every Dial; the zero value is ready.
type KnownHosts struct {
	mu   sync.Mutex            // held while reading: who comes meanwhile wants the same
	keys map[string]*knownKeys // by the names of the files
}

// knownKeys is what some files say. It is never changed.
type knownKeys struct {
	db     *knownhosts.HostKeyDB
	names  map[string]string // a cleaned copy's name → the file's own name
	stamps []os.FileInfo     // of each file; nil for one that is not there
}

// read gives what the files say now.
func (k *KnownHosts) read(files []string) (*knownKeys, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// Before reading: what changes in between is then found to be newer next time.
	stamps := stampsOf(files)
	key := strings.Join(files, "\x00")
	if kept := k.keys[key]; kept != nil && sameStamps(kept.stamps, stamps) {
		return kept, nil
	}
	read, err := readKnownHosts(files)
	if err != nil {
		return nil, err
	}
	read.stamps = stamps
	if k.keys == nil {
		k.keys = map[string]*knownKeys{}
	}
	k.keys[key] = read
	return read, nil
}

func stampsOf(files []string) []os.FileInfo {
	stamps := make([]os.FileInfo, len(files))
	for i, name := range files {
		stamps[i], _ = os.Stat(name) // why it cannot be read, reading tells
	}
	return stamps
}

func sameStamps(a, b []os.FileInfo) bool {
	for i := range a {
		switch {
		case a[i] == nil && b[i] == nil:
		case a[i] == nil || b[i] == nil || !os.SameFile(a[i], b[i]):
			return false
		case a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()):
			return false
		}
	}
	return true
}

// readKnownHosts reads files; those that do not exist say nothing. The library gives
// up at the first line it cannot read, such as a key type it does not know, where
// OpenSSH goes on; so such lines are blanked in a copy.
func readKnownHosts(names []string) (*knownKeys, error) {
	k := &knownKeys{names: map[string]string{}}
	var files []string
	for _, name := range names {
		if name == os.DevNull { // a usual way to have none
			continue
		}
		data, err := durable.Read(name, durable.ConfigSize)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		clean := blankUnreadable(data)
		if bytes.Equal(clean, data) {
			files = append(files, name)
			continue
		}
		dir, err := os.MkdirTemp("", "nixbench-known-hosts-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		copied := filepath.Join(dir, "known_hosts")
		if err := os.WriteFile(copied, clean, 0o600); err != nil {
			return nil, err
		}
		k.names[copied] = name
		files = append(files, copied)
	}
	var err error
	k.db, err = knownhosts.NewDB(files...)
	return k, err
}

// blankUnreadable empties the lines that cannot be parsed, keeping the count.
func blankUnreadable(data []byte) []byte {
	lines := bytes.Split(data, []byte("\n"))
	for i, line := range lines {
		text := bytes.TrimSpace(line)
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		if !readable(text) {
			lines[i] = nil
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

// readable reports whether the library can read a line.
func readable(line []byte) bool {
	fields := bytes.Fields(line)
	if len(fields) > 0 && (string(fields[0]) == "@cert-authority" || string(fields[0]) == "@revoked") {
		fields = fields[1:]
	}
	if len(fields) < 3 {
		return false
	}
	_, _, key, _, _, err := ssh.ParseKnownHosts(line)
	return err == nil && key.Type() == string(fields[1])
}
