package closure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/lines"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// longestMessage is the maximal length of a line of Nix's log in bytes. Longer lines are discarded, because a line that was cut cannot
// be parsed.
const longestMessage = 1 << 20

const (
	buildTime = 24 * time.Hour // time limit of a build on a node
	buildLog  = 1 << 30        // maximum size of the log of a build, in bytes
)

// BuildOnTarget copies a derivation to the node and builds its output path there, with the node's own caches and
// builders. Unless root is empty, it protects the output path as Copy does. The log is sent as events. If a build fails, the error
// is an [*Error] that wraps a *nixeval.BuildError.
func (c *Copier) BuildOnTarget(ctx context.Context, node string, h remote.Connector, drv, path, root string) error {
	return c.withLink(ctx, node, h, func(l *link) error {
		return l.protect(ctx, path, root, func() error { return l.build(ctx, drv) })
	})
}

// build copies the derivation to the node and builds it there.
func (l *link) build(ctx context.Context, drv string) error {
	// With --derivation, nix copy copies the .drv files. Without the flag, older versions of Nix copy the outputs of the derivations.
	if _, err := l.copyClosures(ctx, []string{drv}, "--derivation"); err != nil {
		return err
	}
	log := &nixlog.Log{Phase: event.Build, Send: l.c.newBuildSink(l.node)}
	argv := []string{"env", "NIX_REMOTE=daemon", "nix-store", "--realise", "--keep-going", "--no-gc-warning", "--log-format", "internal-json", "--", drv}
	stderr := &lines.Writer{Max: longestMessage, Each: func(line string) {
		if len(line) < longestMessage {
			log.HandleLine(line)
		}
	}}
	ctx, cancel := context.WithTimeoutCause(ctx, buildTime, fmt.Errorf("the build has not ended within %v", buildTime))
	defer cancel()
	// Build through the Nix daemon, even as root: the daemon builds as separate users, and ends the build when its client disconnects.
	err := l.conn.Run(ctx, remote.Cmd{Argv: argv, Stderr: stderr, MaxOutput: buildLog})
	stderr.Flush()
	if err == nil {
		return nil
	}
	step, command := "build on the node", "command: "+strings.Join(argv, " ")
	var exit *remote.RunError
	if !errors.As(err, &exit) {
		return newError(l.node, step, err, "") // without the command, because the run was cancelled or the connection was lost
	}
	if failures := nixeval.BuildFailures(log); len(failures) > 0 && failures[0].Drv != "" {
		failed := &nixeval.BuildError{Units: []string{l.node}, Failures: failures}
		return newError(l.node, step, failed, "the full log is on the node: nix log "+failures[0].Drv, command)
	}
	return newError(l.node, step, fmt.Errorf("nix-store ended with exit status %d", exit.ExitStatus), "", command, log.Output())
}

// newBuildSink returns a sink for the events of one build's log. The sink sends them as events of the node.
func (c *Copier) newBuildSink(node string) event.Sink {
	var name string // of the derivation that was started last
	var done, total int
	return func(e event.Event) {
		e.Node = node
		switch e.Kind {
		case event.BuildStart:
			name = nameOf(e.Path)
		case event.Progress:
			done, total = e.Done, e.Total
		case event.BuildLog:
			e.Kind = event.NodeLog
			c.Send.Send(e)
			return
		case event.Message:
			// Leave out a warning about a setting that the daemon ignores because it does not trust the user.
			if e.Level == "warning" && !strings.HasPrefix(e.Text, "ignoring the client-specified setting") {
				c.Send.Send(e)
			}
			return
		default:
			return
		}
		if name != "" && total > 0 {
			c.Send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Build, Node: node,
				Text: fmt.Sprintf("%d of %s, %s", done, event.Count(total, "derivation"), name)})
		}
	}
}

// nameOf returns the name of a store path, without folder, hash and the suffix .drv.
func nameOf(path string) string {
	base := path[strings.LastIndexByte(path, '/')+1:]
	if _, name, ok := strings.Cut(base, "-"); ok {
		return strings.TrimSuffix(name, ".drv")
	}
	return base
}
