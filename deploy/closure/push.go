package closure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/closure/daemon"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// push copies paths to one node over the connection to the node's Nix daemon.
type push struct {
	*link
	missing missing
	done    *progress
}

func (m missing) stepName() string { return "copy " + formatCount(len(m.paths), "path") }

// run copies the paths. It first lets the node fetch what its caches have, if that is allowed.
func (p *push) run(ctx context.Context) error {
	p.done = newProgress(p.c.Send, p.node, p.missing)
	paths := p.missing.paths
	if p.c.Substitute {
		p.sent = p.handleSubstitution
		left, err := p.queryInvalid(ctx, paths, true)
		if err != nil {
			return err
		}
		paths = left
	}
	if err := p.sendPaths(ctx, paths); err != nil {
		return err
	}
	p.done.finish()
	return nil
}

// handleSubstitution reports a path that the node fetches from a cache.
func (p *push) handleSubstitution(m daemon.Message) {
	if m.Done {
		p.done.complete(m.Path)
	} else {
		p.done.start(m.Path)
	}
}

// sendPaths sends the paths, and waits until the node has registered all of them. It sends without waiting for replies,
// so a path costs no round trip.
func (p *push) sendPaths(ctx context.Context, paths []string) error {
	reader := p.c.chunks.newReader(paths)
	defer reader.close()
	written := make(chan error, 1)
	go func() { written <- p.writePaths(reader, paths) }()
	var err error
	added := 0
	for _, path := range paths {
		if err = p.daemon.ReadReply(); err != nil {
			break
		}
		added++
		p.done.complete(path)
	}
	if err == nil {
		<-written
		return nil
	}
	p.daemon.Close() // ends writePaths
	if writeErr := <-written; errors.As(writeErr, new(*localError)) {
		err = writeErr
	}
	return p.newPushError(ctx, err, newMissing(p.missing.infos, paths[added:]))
}

// writePaths writes the paths to the daemon. It disconnects the daemon if a path cannot be read here.
func (p *push) writePaths(reader *chunkReader, paths []string) error {
	for _, path := range paths {
		info := p.missing.infos[path]
		p.done.start(path)
		err := p.daemon.WritePath(info, func(write func([]byte) error) error {
			return reader.read(path, int64(info.NarSize), func(data []byte, end int64) error {
				p.done.update(path, end)
				return write(data)
			})
		})
		if err != nil {
			p.daemon.Close()
			return err
		}
	}
	return p.daemon.Flush()
}

// queryRemaining asks the node over a new connection which of the paths are still missing.
func (p *push) queryRemaining(ctx context.Context, left missing) missing {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	l, err := p.c.openLink(ctx, p.node, p.conn)
	if err != nil {
		return left
	}
	defer l.close()
	paths, err := l.queryInvalid(ctx, left.paths, false)
	if err != nil {
		return left
	}
	return newMissing(left.infos, paths)
}

// newPushError returns the error of a failed copy. left contains the paths that were not copied.
func (p *push) newPushError(ctx context.Context, err error, left missing) error {
	e := &Error{Node: p.node, Phase: event.Copy, Step: p.missing.stepName()}
	var reported *daemon.Error
	if !errors.As(err, &reported) {
		e.Err = err
		if !errors.As(err, new(*localError)) {
			e.Err = p.explain(ctx, err)
		}
		if p.conn.Err() == nil && ctx.Err() == nil {
			// The daemon may have ended before its last replies arrived.
			addCopyReason(ctx, e, p.conn, "", p.missing, p.queryRemaining(ctx, left))
		}
		return addLostHint(e)
	}
	printed := nixlog.StripANSI(reported.Message)
	e.Err = fmt.Errorf("the Nix daemon reports for %s: %s", left.paths[0], firstLine(printed))
	if firstLine(printed) != printed {
		e.Stderr = printed
	}
	addCopyReason(ctx, e, p.conn, printed, p.missing, left)
	return e
}
