package hostkeys

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/skeema/knownhosts"

	"github.com/nixbench/nixbench/deploy/durable"
)

// KnownHosts caches known_hosts files, so that a thousand connections read the same file only once. Pass the same
// KnownHosts to every Dial. The zero value works.
type KnownHosts struct {
	mu   sync.Mutex            // held while a file is read, so that concurrent callers share the result
	keys map[string]*knownKeys // names of files, joined with NUL → content of these files
}

// knownKeys is the content of one or more known_hosts files. It is immutable.
type knownKeys struct {
	db *knownhosts.HostKeyDB
	// names maps the path of a temporary copy to the path of the original file. A file with lines that cannot
	// be parsed is read from a copy in which these lines are empty.
	names map[string]string
}

// read returns the content of the files. With again, it reads the files also if they were read before.
func (k *KnownHosts) read(files []string, again bool) (*knownKeys, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := strings.Join(files, "\x00")
	if kept := k.keys[key]; kept != nil && !again {
		return kept, nil
	}
	read, err := readKnownHosts(files)
	if err != nil {
		return nil, err
	}
	if k.keys == nil {
		k.keys = map[string]*knownKeys{}
	}
	k.keys[key] = read
	return read, nil
}

// readKnownHosts reads known_hosts files; missing files are ignored. OpenSSH skips lines that it cannot parse, such as
// lines with an unknown key type, but the library fails for the whole file. Therefore readKnownHosts reads a file with
// such lines from a temporary copy in which these lines are empty, so that line numbers in errors remain correct.
func readKnownHosts(names []string) (*knownKeys, error) {
	k := &knownKeys{names: map[string]string{}}
	var files []string
	for _, name := range names {
		if name == os.DevNull { // /dev/null has no keys; users configure it in order to have no known_hosts file
			continue
		}
		data, err := durable.Read(name, durable.ConfigSize)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err := knownhosts.NewDB(name); err == nil {
			files = append(files, name)
			continue
		}
		dir, err := os.MkdirTemp("", "nixbench-known-hosts-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		copied := filepath.Join(dir, "known_hosts")
		lines := bytes.Split(data, []byte("\n"))
		for i, line := range lines {
			if err := os.WriteFile(copied, line, 0o600); err != nil {
				return nil, err
			}
			if _, err := knownhosts.NewDB(copied); err != nil {
				lines[i] = nil
			}
		}
		if err := os.WriteFile(copied, bytes.Join(lines, []byte("\n")), 0o600); err != nil {
			return nil, err
		}
		k.names[copied] = name
		files = append(files, copied)
	}
	var err error
	k.db, err = knownhosts.NewDB(files...)
	return k, err
}
