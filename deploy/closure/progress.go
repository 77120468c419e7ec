package closure

import (
	"fmt"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// progressEvery is the minimal time between two progress events of a copy.
const progressEvery = 100 * time.Millisecond

// progress counts the copied bytes and paths of one copy to one node.
type progress struct {
	send  event.Sink
	node  string
	total missing

	mu     sync.Mutex
	paths  int
	bytes  int64            // size of the completed paths
	within map[string]int64 // path that is being copied → the number of its bytes that were copied so far
	sent   time.Time
}

func newProgress(send event.Sink, node string, of missing) *progress {
	p := &progress{send: send, node: node, total: of, within: map[string]int64{}}
	p.sendProgress(true)
	return p
}

// start reports that the copy of a path has started.
func (p *progress) start(path string) {
	p.send.Send(event.Event{Kind: event.NodeLog, Phase: event.Copy, Node: p.node, Path: path, Text: "copying path '" + path + "'"})
}

// update sets the number of a path's bytes that were sent.
func (p *progress) update(path string, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if info := p.total.infos[path]; info != nil {
		p.within[path] = min(bytes, int64(info.NarSize))
		p.sendProgress(false)
	}
}

// complete counts a path as copied.
func (p *progress) complete(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if info := p.total.infos[path]; info != nil {
		delete(p.within, path)
		p.paths++
		p.bytes += int64(info.NarSize)
		p.sendProgress(false)
	}
}

// newLog returns a log for nix copy that updates the progress. Nix versions before about 2.18 do not report the bytes
// of an incomplete path, so with these versions a path is counted only when it is complete.
func (p *progress) newLog() *nixlog.Reader {
	l := newNixLog(func(text string) {
		p.send.Send(event.Event{Kind: event.Message, Phase: event.Copy, Node: p.node, Level: "warning", Text: text})
	})
	l.Start = func(a nixlog.Activity) {
		if a.Kind == nixlog.CopyPath {
			p.start(a.Path)
		}
	}
	l.Progress = func(a nixlog.Activity, done, _ int64) {
		if a.Kind == nixlog.CopyPath {
			p.update(a.Path, done)
		}
	}
	l.Stop = func(a nixlog.Activity) {
		if a.Kind == nixlog.CopyPath {
			p.complete(a.Path)
		}
	}
	return l
}

// finish sets the progress to the total, because all paths are on the node. The progress may be lower before: Nix does
// not report paths that the node has fetched itself, or that another process has copied.
func (p *progress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paths, p.bytes = len(p.total.paths), p.total.bytes
	clear(p.within)
	p.sendProgress(true)
}

// sendProgress sends a progress event. Unless always is set, it does nothing if the last event was sent less than
// progressEvery ago. The caller must hold the lock of p.
func (p *progress) sendProgress(always bool) {
	now := time.Now()
	if !always && now.Sub(p.sent) < progressEvery {
		return
	}
	p.sent = now
	done := p.bytes
	for _, n := range p.within {
		done += n
	}
	p.send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Copy, Node: p.node,
		Done: int(min(done, p.total.bytes)), Total: int(p.total.bytes),
		Text: fmt.Sprintf("%d of %s", min(p.paths, len(p.total.paths)), formatCount(len(p.total.paths), "path"))})
}
