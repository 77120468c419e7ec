package closure

import (
	"fmt"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// progressEvery is the minimal time between two progress events of a copy.
const progressEvery = 100 * time.Millisecond

// progress counts the copied bytes and paths of one copy to one node.
type progress struct {
	send  event.Sink
	node  string
	total Stats

	mu   sync.Mutex
	done Stats
	sent time.Time
}

func newProgress(send event.Sink, node string, total Stats) *progress {
	p := &progress{send: send, node: node, total: total}
	p.add(0, 0)
	return p
}

// start reports that the copy of a path has started.
func (p *progress) start(path string) {
	p.send.Send(event.Event{Kind: event.NodeLog, Phase: event.Copy, Node: p.node, Path: path, Text: "copying path '" + path + "'"})
}

// add counts copied paths and bytes.
func (p *progress) add(paths int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done.Paths, p.done.Bytes = min(p.done.Paths+paths, p.total.Paths), min(p.done.Bytes+bytes, p.total.Bytes)
	if time.Since(p.sent) >= progressEvery {
		p.sendProgress()
	}
}

// finish sets the progress to the total, because all paths are on the node. The progress may be lower before: Nix does
// not report paths that the node has fetched itself, or that another process has copied.
func (p *progress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = p.total
	p.sendProgress()
}

// sendProgress sends a progress event. The caller must hold the lock of p.
func (p *progress) sendProgress() {
	p.sent = time.Now()
	p.send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Copy, Node: p.node, Done: int(p.done.Bytes), Total: int(p.total.Bytes),
		Text: fmt.Sprintf("%d of %s", p.done.Paths, event.Count(p.total.Paths, "path"))})
}
