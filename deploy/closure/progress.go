package closure

import (
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// progressEvery limits the number of progress events.
const progressEvery = 100 * time.Millisecond

// progress counts bytes and paths from nix copy's log. Nix reports the bytes of a single path only since
// about 2.18; with older versions a path is counted when it is complete.
type progress struct {
	send event.Sink
	node string
	total   missing

	paths  int
	bytes  int64            // of the completed paths
	within map[string]int64 // path in transfer → its bytes so far
	sent   time.Time
}

func newProgress(send event.Sink, node string, of missing) *progress {
	p := &progress{send: send, node: node, total: of, within: map[string]int64{}}
	p.sendProgress(true)
	return p
}

// newLog returns a log that counts the progress.
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

// finish reports that everything has arrived. Nix does not report paths that the node has fetched
// itself, or that another process has copied.
func (p *progress) finish() {
	p.paths, p.bytes = len(p.total.paths), p.total.bytes
	clear(p.within)
	p.sendProgress(true)
}

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
