package closure

import (
	"container/list"
	"fmt"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/closure/nar"
)

const (
	chunkSize = 1 << 20
	maxChunks = 32 << 20 // maximal size of the chunks in memory, in bytes

	maxPause   = 500 * time.Millisecond
	pauseAgain = 5 * time.Second
)

// chunks reads the NARs of store paths in chunks, each of them once for all nodes that need it at about the same time.
// A chunk stays in memory until the memory is needed for newer chunks; chunks that all nodes have read are dropped
// first.
//
// Each node reads at its own speed. While the memory is full of chunks that some node has not read, the fastest node
// pauses, so that the others can follow. If they do not within maxPause, the oldest chunks are dropped, and no node
// pauses for the time pauseAgain: a slow or stuck node does not stop the others. It reads dropped chunks from the store
// again.
type chunks struct {
	mu       sync.Mutex
	paths    map[string]*sharedPath // paths that a node has not finished, or that have chunks in memory
	unread   queue                  // chunks in memory that some node has not read
	read     queue                  // other chunks in memory
	progress chan struct{}          // is closed when the next chunk leaves unread; nil: no node pauses
	noPauses time.Time              // no node pauses until then
	reads    int64                  // bytes that were read from the store

	maxSize int64 // for tests; 0: maxChunks
}

// queue contains chunks, the oldest first.
type queue struct {
	list.List
	size int64 // of the chunks, in bytes
}

func (q *queue) add(part *chunk) {
	part.queue, part.element = q, q.PushBack(part)
	q.size += part.size
}

// sharedPath is a store path that nodes copy.
type sharedPath struct {
	path   string
	nodes  int // that have not finished it
	open   func() (*nar.Archive, error)
	chunks map[int64]*chunk // by offset in the NAR
	end    int64            // end of the last chunk that was read
}

// chunk is a part of a NAR. data and err are valid once ready is closed.
type chunk struct {
	ready   chan struct{}
	data    []byte
	err     error
	unread  int           // number of nodes that have not read it
	queue   *queue        // that contains it; nil if the chunk is no longer kept
	element *list.Element // of queue
	path    string
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
			c.paths[p] = &sharedPath{path: p, open: sync.OnceValues(func() (*nar.Archive, error) { return nar.New(p) }), chunks: map[int64]*chunk{}}
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

// finish counts a node as finished with a path. After the last node, no node waits for the path's chunks.
func (r *chunkReader) finish(path string) {
	c := r.all
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(r.left, path)
	shared := c.paths[path]
	shared.nodes--
	if shared.nodes > 0 {
		return
	}
	for _, part := range shared.chunks {
		c.markRead(part)
	}
	c.forget(shared)
}

// forget removes a path that no node copies and that has no chunks in memory.
func (c *chunks) forget(shared *sharedPath) {
	if shared.nodes == 0 && len(shared.chunks) == 0 {
		delete(c.paths, shared.path)
	}
}

// get returns the chunk at an offset. It reads the chunk if no other node has, or if the chunk was dropped.
func (c *chunks) get(shared *sharedPath, archive *nar.Archive, offset int64) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := min(chunkSize, archive.Size-offset)
	if offset >= shared.end { // otherwise the chunk is in memory or was dropped: other nodes are ahead
		c.pauseWhileFull(size)
	}
	part := shared.chunks[offset]
	if part == nil {
		nodes := shared.nodes
		if offset < shared.end { // the chunk was dropped: it is read for this node, and the nodes ahead do not read it again
			nodes = 1
		}
		part = &chunk{ready: make(chan struct{}), unread: nodes, path: shared.path, offset: offset, size: size}
		shared.chunks[offset], shared.end = part, max(shared.end, offset+size)
		c.unread.add(part)
		c.reads += size
		for c.unread.size+c.read.size > c.limit() {
			c.dropOldest()
		}
		c.mu.Unlock()
		part.data = make([]byte, size)
		_, part.err = archive.ReadAt(part.data, offset)
		close(part.ready)
		c.mu.Lock()
	}
	if part.unread--; part.unread == 0 {
		c.markRead(part)
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	<-part.ready
	return part.data, part.err
}

// pauseWhileFull waits until there is memory for a chunk. The caller holds the lock.
func (c *chunks) pauseWhileFull(size int64) {
	timeout := time.NewTimer(maxPause)
	defer timeout.Stop()
	for c.unread.size > 0 && c.unread.size+size > c.limit() && time.Now().After(c.noPauses) {
		if c.progress == nil {
			c.progress = make(chan struct{})
		}
		progress := c.progress
		c.mu.Unlock()
		select {
		case <-progress:
			c.mu.Lock()
		case <-timeout.C:
			c.mu.Lock()
			c.noPauses = time.Now().Add(pauseAgain)
		}
	}
}

func (c *chunks) limit() int64 {
	if c.maxSize > 0 {
		return c.maxSize
	}
	return maxChunks
}

// markRead moves a chunk that no node waits for to the chunks that are dropped first.
func (c *chunks) markRead(part *chunk) {
	if part.queue == &c.unread {
		c.remove(part)
		c.read.add(part)
	}
}

// dropOldest removes a chunk from the memory. Nodes that are using it keep it.
func (c *chunks) dropOldest() {
	oldest := c.read.Front()
	if oldest == nil {
		oldest = c.unread.Front()
	}
	part := oldest.Value.(*chunk)
	c.remove(part)
	shared := c.paths[part.path]
	delete(shared.chunks, part.offset)
	c.forget(shared)
}

// remove removes a chunk from its queue.
func (c *chunks) remove(part *chunk) {
	part.queue.Remove(part.element)
	part.queue.size -= part.size
	part.queue, part.element = nil, nil
	if c.progress != nil {
		close(c.progress)
		c.progress = nil
	}
}
