package closure

import (
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// progressEvery limits the number of progress events.
const progressEvery = 100 * time.Millisecond

// progress counts bytes and paths from nix copy's log. Nix reports the bytes of a single path only since
// about 2.18; with older versions a path is counted when it is complete.
type progress struct {
	send event.Sink
	node string
	of   missing

	paths  int
	bytes  int64            // of the completed paths
	within map[string]int64 // path in transfer → its bytes so far
	told   time.Time
}

func newProgress(send event.Sink, node string, of missing) *progress {
	p := &progress{send: send, node: node, of: of, within: map[string]int64{}}
	p.tell(true)
	return p
}

func (p *progress) log() *nixLog {
	return &nixLog{
		progress: func(kind int64, path string, done, _ int64) {
			if size, ours := p.of.sizes[path]; kind == actCopyPath && ours {
				p.within[path] = min(done, size)
				p.tell(false)
			}
		},
		stopped: func(kind int64, path string) {
			if size, ours := p.of.sizes[path]; kind == actCopyPath && ours {
				delete(p.within, path)
				p.paths++
				p.bytes += size
				p.tell(false)
			}
		},
		warning: func(text string) {
			p.send.Send(event.Event{Kind: event.Message, Phase: event.Copy, Node: p.node, Level: "warning", Text: text})
		},
	}
}

// finish reports that everything has arrived. Nix does not report paths that the node has fetched
// itself, or that another process has copied.
func (p *progress) finish() {
	p.paths, p.bytes = len(p.of.paths), p.of.bytes
	clear(p.within)
	p.tell(true)
}

func (p *progress) tell(always bool) {
	now := time.Now()
	if !always && now.Sub(p.told) < progressEvery {
		return
	}
	p.told = now
	done := p.bytes
	for _, n := range p.within {
		done += n
	}
	p.send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Copy, Node: p.node,
		Done: int(min(done, p.of.bytes)), Total: int(p.of.bytes),
		Text: fmt.Sprintf("%d of %s", min(p.paths, len(p.of.paths)), count(len(p.of.paths), "path"))})
}
