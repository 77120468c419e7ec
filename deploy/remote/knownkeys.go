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

// KnownHosts caches known_hosts files, so that a thousand connections read a file of a
// thousand lines once. A changed file is read again. Pass the same one to every Dial. The
// zero value works.
type KnownHosts struct {
	mu   sync.Mutex            // held while reading, so that concurrent callers share the result
	keys map[string]*knownKeys // by the names of the files
}

// knownKeys is the content of some known_hosts files. It is immutable.
type knownKeys struct {
	db     *knownhosts.HostKeyDB
	names  map[string]string // a cleaned copy's name → the file's own name
	stamps []os.FileInfo     // of each file; nil for one that is not there
}

// read returns the current content of the files.
func (k *KnownHosts) read(files []string) (*knownKeys, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// Take the stamps before reading: a change in between is then detected at the next read.
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
		stamps[i], _ = os.Stat(name) // an error is reported by the read
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

// readKnownHosts reads files; missing files are ignored. The library fails at the first line
// that it cannot parse, such as an unknown key type, which OpenSSH skips. Such lines are
// therefore blanked in a copy.
func readKnownHosts(names []string) (*knownKeys, error) {
	k := &knownKeys{names: map[string]string{}}
	var files []string
	for _, name := range names {
		if name == os.DevNull { // commonly configured for no file
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
