package state

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// Hashes remembers the hashes of large files, so that an image is read once, and not
// in every run. A file with the same size and time counts as the same.
type Hashes struct {
	dir Dir

	mu      sync.Mutex
	known   map[string]fileHash // by path
	changed bool
}

type fileHash struct {
	Size   int64  `json:"size"`
	Time   int64  `json:"time"` // nanoseconds
	SHA256 string `json:"sha256"`
}

func (d Dir) hashesFile() string { return filepath.Join(string(d), "images.json") }

// Hashes reads what is remembered. A file of them that cannot be read counts as none:
// it costs time, and nothing else.
func (d Dir) Hashes() *Hashes {
	h := &Hashes{dir: d, known: map[string]fileHash{}}
	if data, err := os.ReadFile(d.hashesFile()); err == nil {
		if json.Unmarshal(data, &h.known) != nil || h.known == nil {
			h.known = map[string]fileHash{}
		}
	}
	return h
}

// Of is the SHA-256 of a file, in hex.
func (h *Hashes) Of(file string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	now := fileHash{Size: info.Size(), Time: info.ModTime().UnixNano()}
	if old := h.known[file]; old.Size == now.Size && old.Time == now.Time && old.SHA256 != "" {
		return old.SHA256, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	now.SHA256 = hex.EncodeToString(sum.Sum(nil))
	h.known[file], h.changed = now, true
	return now.SHA256, nil
}

// Save writes down what was found out since. Files that are gone are forgotten.
func (h *Hashes) Save() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.changed {
		return nil
	}
	for file := range h.known {
		if !exists(file) {
			delete(h.known, file)
		}
	}
	data, err := json.Marshal(h.known)
	if err != nil {
		return err
	}
	h.changed = false
	return h.dir.write(h.dir.hashesFile(), append(data, '\n'))
}
