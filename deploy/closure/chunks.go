package closure

import (
	"container/list"
	"fmt"
	"sync"

	"github.com/nixbench/nixbench/deploy/closure/nar"
)

const (
	chunkSize = 1 << 20
	maxChunks = 64 << 20 // maximal size of the chunks in memory, in bytes
)

// chunks reads the NARs of store paths in chunks, each of them once for all nodes that need it at about the same time.
// Each node reads at its own speed. A chunk stays in memory until all nodes that copy the path have read it, or until
// the memory is needed for newer chunks: a node that is far behind the others reads it from the store again.
type chunks struct {
	mu      sync.Mutex
	paths   map[string]*sharedPath // paths that at least one node has not finished
	recent  list.List              // of *chunk in memory, the oldest first
	size    int64                  // of these chunks
	maxSize int64                  // for tests; 0: maxChunks
}

// sharedPath is a store path that nodes copy.
type sharedPath struct {
	nodes  int // that have not finished it
	open   func() (*nar.Archive, error)
	chunks map[int64]*chunk // by offset in the NAR
}

// chunk is a part of a NAR. data and err are valid once ready is closed.
type chunk struct {
	ready   chan struct{}
	data    []byte
	err     error
	unread  int           // number of nodes that have not read it
	element *list.Element // in chunks.recent; nil if the chunk is no longer kept
	of      *sharedPath
	offset  int64
	size    int64
}

// localError means that a path of the local store cannot be read.
type localError struct {
	path string
	err  error
}

func (e *localError) Error() string {
	return fmt.Sprintf("read %s from the local store: %v; nix-store --verify-path checks it, and nix-store --repair-path repairs it", e.path, e.err)
}

func (e *localError) Unwrap() error { return e.err }

// chunkReader reads the chunks of paths for one node.
type chunkReader struct {
	all  *chunks
	left map[string]bool // paths that were announced and are not finished
}

// newReader announces that a node will read the paths.
func (c *chunks) newReader(paths []string) *chunkReader {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paths == nil {
		c.paths = map[string]*sharedPath{}
	}
	r := &chunkReader{all: c, left: map[string]bool{}}
	for _, p := range paths {
		if c.paths[p] == nil {
			c.paths[p] = &sharedPath{open: sync.OnceValues(func() (*nar.Archive, error) { return nar.New(p) }), chunks: map[int64]*chunk{}}
		}
		c.paths[p].nodes++
		r.left[p] = true
	}
	return r
}

// read passes the chunks of a path's NAR to each, in order, with the offset of the chunk's end. size is the recorded
// size of the NAR. each must not change the data. read must be called once for each announced path at most. Its error is a *localError or
// an error of each.
func (r *chunkReader) read(path string, size int64, each func(data []byte, end int64) error) error {
	defer r.finish(path)
	r.all.mu.Lock()
	shared := r.all.paths[path]
	r.all.mu.Unlock()
	archive, err := shared.open()
	if err == nil && archive.Size != size {
		err = fmt.Errorf("its NAR has %d bytes, and %d are recorded", archive.Size, size)
	}
	if err != nil {
		return &localError{path, err}
	}
	for offset := int64(0); offset < size; {
		data, err := r.all.get(shared, archive, offset)
		if err != nil {
			return &localError{path, err}
		}
		offset += int64(len(data))
		if err := each(data, offset); err != nil {
			return err
		}
	}
	return nil
}

// close withdraws the announcement of the paths that were not read.
func (r *chunkReader) close() {
	for p := range r.left {
		r.finish(p)
	}
}

// finish counts a node as finished with a path. After the last node, the path's chunks are dropped.
func (r *chunkReader) finish(path string) {
	c := r.all
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(r.left, path)
	shared := c.paths[path]
	shared.nodes--
	if shared.nodes == 0 {
		delete(c.paths, path)
		for _, part := range shared.chunks {
			c.drop(part)
		}
	}
}

// get returns the chunk at an offset. It reads the chunk if no other node has.
func (c *chunks) get(shared *sharedPath, archive *nar.Archive, offset int64) ([]byte, error) {
	c.mu.Lock()
	part := shared.chunks[offset]
	if part == nil {
		part = &chunk{ready: make(chan struct{}), unread: shared.nodes, of: shared, offset: offset, size: min(chunkSize, archive.Size-offset)}
		shared.chunks[offset] = part
		part.element = c.recent.PushBack(part)
		c.size += part.size
		c.mu.Unlock()
		part.data = make([]byte, part.size)
		_, part.err = archive.ReadAt(part.data, offset)
		close(part.ready)
		c.mu.Lock()
	}
	part.unread--
	if part.unread <= 0 {
		c.drop(part)
	}
	limit := c.maxSize
	if limit == 0 {
		limit = maxChunks
	}
	for c.size > limit {
		c.drop(c.recent.Front().Value.(*chunk))
	}
	c.mu.Unlock()
	<-part.ready
	return part.data, part.err
}

// drop removes a chunk from the memory, if it is there. Nodes that are using it keep it.
func (c *chunks) drop(part *chunk) {
	if part.element == nil {
		return
	}
	c.recent.Remove(part.element)
	part.element = nil
	c.size -= part.size
	delete(part.of.chunks, part.offset)
}
