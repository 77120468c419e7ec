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
// thousand lines once. A changed file is read again. Pass the same KnownHosts to every
// Dial. The zero value works.
type KnownHosts struct {
	mu   sync.Mutex            // held while reading, so that concurrent callers share the result
	keys map[string]*knownKeys // names of files, joined with NUL → content of these files
}

// knownKeys is the content of one or more known_hosts files. It is immutable.
type knownKeys struct {
	db *knownhosts.HostKeyDB
	// names maps the path of a temporary copy to the path of the original file. A file with lines that cannot
	// be parsed is read from a copy in which these lines are empty.
	names  map[string]string
	stamps []os.FileInfo // stat of each file when it was read; nil for a missing file
}

// read returns the current content of the files.
func (k *KnownHosts) read(files []string) (*knownKeys, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// Stat the files before reading them, so that the next call detects a change during the read.
	stamps := statFiles(files)
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

// statFiles returns the stat of each file; nil for a file that cannot be found.
func statFiles(files []string) []os.FileInfo {
	stamps := make([]os.FileInfo, len(files))
	for i, name := range files {
		stamps[i], _ = os.Stat(name) // readKnownHosts reports the error
	}
	return stamps
}

// sameStamps reports whether two stats of the same files are equal, so that no file has changed.
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

// readKnownHosts reads known_hosts files; missing files are ignored. OpenSSH skips lines that it
// cannot parse, such as lines with an unknown key type, but the library fails. A file with such lines
// is therefore read from a temporary copy in which these lines are empty.
func readKnownHosts(names []string) (*knownKeys, error) {
	k := &knownKeys{names: map[string]string{}}
	var files []string
	for _, name := range names {
		if name == os.DevNull { // users configure /dev/null to have no known_hosts file
			continue
		}
		data, err := durable.Read(name, durable.ConfigSize)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		clean := blankUnreadableLines(data)
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

// blankUnreadableLines replaces lines that cannot be parsed by empty lines, so that line numbers in
// errors remain correct.
func blankUnreadableLines(data []byte) []byte {
	lines := bytes.Split(data, []byte("\n"))
	for i, line := range lines {
		text := bytes.TrimSpace(line)
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		if !isReadable(text) {
			lines[i] = nil
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

// isReadable reports whether the library can parse a line of a known_hosts file.
func isReadable(line []byte) bool {
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
