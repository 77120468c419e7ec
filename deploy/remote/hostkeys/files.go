package hostkeys

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/skeema/knownhosts"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
)

// KnownHosts caches known_hosts files, so that a thousand connections read the same file only once. A file is read
// again when it has changed. Pass the same KnownHosts to every Dial. The zero value works.
type KnownHosts struct {
	Send event.Sink // receives warnings about lines that cannot be read

	mu   sync.Mutex            // held while a file is read, so that concurrent callers share the result
	keys map[string]*knownKeys // names of files, joined with NUL → content of these files
}

// knownKeys is the content of one or more known_hosts files. It is immutable.
type knownKeys struct {
	db *knownhosts.HostKeyDB
	// names maps the path of a temporary copy to the path of the original file. A file with lines that cannot
	// be parsed is read from a copy in which these lines are empty.
	names    map[string]string
	warnings []string      // warnings about lines that cannot be read
	stamps   []os.FileInfo // stat of each file when it was read; nil for a missing file
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
	for _, text := range read.warnings {
		k.Send.Send(event.Event{Kind: event.Message, Phase: event.Connect, Level: "warning", Text: text})
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

// sameStamps reports whether two stats of the same files are equal, which means that no file has changed.
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

// readKnownHosts reads known_hosts files; missing files are ignored. OpenSSH skips lines that it cannot parse, such as
// lines with an unknown key type, but the library fails for the whole file. Therefore readKnownHosts reads a file with
// such lines from a temporary copy in which these lines are empty.
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
		if err := blankUnreadableLines(lines, copied); err != nil {
			return nil, err
		}
		if err := os.WriteFile(copied, bytes.Join(lines, []byte("\n")), 0o600); err != nil {
			return nil, err
		}
		var skipped []string
		for i, line := range lines {
			if line == nil {
				skipped = append(skipped, strconv.Itoa(i+1))
			}
		}
		k.warnings = append(k.warnings, fmt.Sprintf("%s: lines that cannot be read are skipped, as by OpenSSH: %s", name, strings.Join(skipped, ", ")))
		k.names[copied] = name
		files = append(files, copied)
	}
	var err error
	k.db, err = knownhosts.NewDB(files...)
	return k, err
}

// blankUnreadableLines replaces each line that the library cannot parse by an empty line, so that line numbers in
// errors remain correct. To test many lines at once, it writes them to the file scratch.
func blankUnreadableLines(lines [][]byte, scratch string) error {
	if err := os.WriteFile(scratch, bytes.Join(lines, []byte("\n")), 0o600); err != nil {
		return err
	}
	if _, err := knownhosts.NewDB(scratch); err == nil {
		return nil
	}
	if len(lines) == 1 {
		lines[0] = nil
		return nil
	}
	half := len(lines) / 2
	return errors.Join(blankUnreadableLines(lines[:half], scratch), blankUnreadableLines(lines[half:], scratch))
}
