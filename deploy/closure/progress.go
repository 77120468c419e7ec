package closure

import (
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// progressEvery is the minimal time between two progress events of a copy.
const progressEvery = 100 * time.Millisecond

// progress counts the copied bytes and paths from nix copy's log. Nix versions before about 2.18 do not
// report the bytes of an incomplete path, so a path is then counted when it is complete.
type progress struct {
	send  event.Sink
	node  string
	total missing

	paths  int
	bytes  int64            // size of the completed paths
	within map[string]int64 // path in transfer → its bytes so far
	sent   time.Time
}

func newProgress(send event.Sink, node string, of missing) *progress {
	p := &progress{send: send, node: node, total: of, within: map[string]int64{}}
	p.sendProgress(true)
	return p
}

// newLog returns a log for nix copy that updates the progress.
func (p *progress) newLog() *nixLog {
	l := newNixLog(func(text string) {
		p.send.Send(event.Event{Kind: event.Message, Phase: event.Copy, Node: p.node, Level: "warning", Text: text})
	})
	l.Progress = func(a nixlog.Activity, done, _ int64) {
		if size, ours := p.total.sizes[a.Path]; a.Kind == nixlog.CopyPath && ours {
			p.within[a.Path] = min(done, size)
			p.sendProgress(false)
		}
	}
	l.Stop = func(a nixlog.Activity) {
		if size, ours := p.total.sizes[a.Path]; a.Kind == nixlog.CopyPath && ours {
			delete(p.within, a.Path)
			p.paths++
			p.bytes += size
			p.sendProgress(false)
		}
	}
	return l
}

// finish reports that all paths are on the node. Until then the progress may be lower: Nix does not
// report paths that the node has fetched itself, or that another process has copied.
func (p *progress) finish() {
	p.paths, p.bytes = len(p.total.paths), p.total.bytes
	clear(p.within)
	p.sendProgress(true)
}

// sendProgress sends a progress event. Unless always is set, it does nothing if the last event was sent
// less than progressEvery ago.
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
