package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/state"
)

// Cache contains the hashes of files, so that nixbench need not read each image in every run. If the size and the
// modification time of a file are the same as before, the cached hash is used.
type Cache struct {
	dir state.Dir

	mu      sync.Mutex
	known   map[string]fileHash // by the path of the file
	changed bool                // whether an entry has changed since the cache was last read or written
}

type fileHash struct {
	Size   int64  `json:"size"`
	Time   int64  `json:"time"`   // modification time in nanoseconds since 1970
	SHA256 string `json:"sha256"` // in hex, see sparseHash
}

func cacheFile(d state.Dir) string { return filepath.Join(string(d), "images.json") }

// ReadCache reads the cache. If the cache file cannot be read, the cache is empty, and all files are
// hashed again.
func ReadCache(d state.Dir) *Cache {
	h := &Cache{dir: d, known: map[string]fileHash{}}
	if data, err := durable.Read(cacheFile(d), durable.ConfigSize); err == nil {
		if json.Unmarshal(data, &h.known) != nil || h.known == nil {
			h.known = map[string]fileHash{}
		}
	}
	return h
}

// Of returns the hash of a file in hex. It uses the cached hash if the file is unchanged, and
// otherwise computes the hash with sparseHash.
func (h *Cache) Of(ctx context.Context, file string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, info, err := durable.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	now := fileHash{Size: info.Size(), Time: info.ModTime().UnixNano()}
	if old := h.known[file]; old.Size == now.Size && old.Time == now.Time && old.SHA256 != "" {
		return old.SHA256, nil
	}
	if now.SHA256, err = sparseHash(ctx, f, info.Size()); err != nil {
		return "", err
	}
	h.known[file], h.changed = now, true
	return now.SHA256, nil
}

const hashBlock = 1 << 20

// sparseHash returns the SHA-256 of a file's size and of the offsets and contents of all blocks that are not zero. It
// does not read holes, because disk images consist mostly of holes. A hole and written zeros give the same hash,
// because two copies of a file may have different holes.
func sparseHash(ctx context.Context, f *os.File, size int64) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%d\n", size)
	block, zero := make([]byte, hashBlock), make([]byte, hashBlock)
	for at := int64(0); at < size; {
		data, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // the rest of the file, after the offset at, is a hole
		}
		end := size
		if err != nil {
			data = at // the file system does not support SEEK_DATA
		} else if end, err = f.Seek(data, unix.SEEK_HOLE); err != nil {
			return "", err
		}
		for at = max(at, data/hashBlock*hashBlock); at < end; at += hashBlock {
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			n, err := f.ReadAt(block[:min(hashBlock, size-at)], at)
			if err != nil && err != io.EOF {
				return "", err
			}
			if !bytes.Equal(block[:n], zero[:n]) {
				fmt.Fprintf(sum, "%d %d\n", at, n)
				sum.Write(block[:n])
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Save writes the cache if the cache has changed. It removes the entries of files that do not exist.
func (h *Cache) Save() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.changed {
		return nil
	}
	for file := range h.known {
		if !durable.Exists(file) {
			delete(h.known, file)
		}
	}
	data, err := json.Marshal(h.known)
	if err != nil {
		return err
	}
	h.changed = false
	return h.dir.Write(cacheFile(h.dir), append(data, '\n'))
}
