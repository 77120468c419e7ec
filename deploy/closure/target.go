package closure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// longestMessage is the maximal length of a line of Nix's log in bytes. It is larger than the default limit of
// remote.Lines, because a line that was split cannot be parsed. Longer lines are discarded.
const longestMessage = 1 << 20

const (
	keepLines = 20             // number of last lines of a build's log that an error contains
	keepBytes = 16 << 20       // size of all lines that are kept
	buildTime = 24 * time.Hour // time limit of a build on a node
	buildLog  = 1 << 30        // maximum size of the log of a build, in bytes
)

// BuildOnTarget copies derivations to the node and builds them there, with the node's own caches and
// builders. The log is sent as events. If a build fails, the error is an [*Error] that wraps a
// *nixeval.BuildError.
func (c *Copier) BuildOnTarget(ctx context.Context, node string, h Host, drvs []string) error {
	// With --derivation, nix copy copies the .drv files. Without the flag, older versions of Nix copy the outputs of the derivations.
	if _, err := c.copyClosures(ctx, node, h, drvs, "--derivation"); err != nil {
		return err
	}
	conn, err := h.Conn(ctx)
	if err != nil {
		return err
	}
	b := &targetBuild{c: c, node: node, tails: map[string][]string{}}
	b.log = newNixLog(b.sendWarning)
	b.log.Start, b.log.Progress, b.log.BuildLog = b.handleStart, b.handleProgress, b.handleBuildLog
	argv := append([]string{"nix-store", "--realise", "--keep-going", "--no-gc-warning", "--log-format", "internal-json", "--"}, drvs...)
	lines := &remote.Lines{Max: longestMessage, Each: func(line string, continued bool) {
		if !continued && len(line) < longestMessage-utf8.UTFMax { // parse only complete lines
			b.log.HandleLine(line)
		}
	}}
	ctx, cancel := context.WithTimeoutCause(ctx, buildTime, fmt.Errorf("the build has not ended within %v", buildTime))
	defer cancel()
	// Build through the Nix daemon, even as root: the daemon builds as separate users, and ends the build when its client disconnects.
	err = conn.Run(ctx, remote.Cmd{Argv: argv, Env: []string{"NIX_REMOTE=daemon"}, Stderr: lines, MaxOutput: buildLog})
	lines.Flush()
	if err == nil {
		return nil
	}
	return b.newBuildError(argv, err)
}

// targetBuild converts the log of one build on a node to events and errors.
type targetBuild struct {
	c     *Copier
	node  string
	log   *nixlog.Reader
	tails map[string][]string // derivation → the last lines of its build log
	kept  int                 // bytes in tails
	name  string              // name of the derivation that was started last
	done  int64               // number of built derivations
	total int64               // number of derivations to build
}

func (b *targetBuild) handleStart(a nixlog.Activity) {
	if a.Kind == nixlog.Build {
		b.name = nameOf(a.Path)
		b.sendProgress()
	}
}

func (b *targetBuild) handleProgress(a nixlog.Activity, done, total int64) {
	if a.Kind == nixlog.Builds && (done != b.done || total != b.total) {
		b.done, b.total = done, total
		b.sendProgress()
	}
}

func (b *targetBuild) sendProgress() {
	if b.name == "" || b.total == 0 {
		return
	}
	b.c.Send.Send(event.Event{Kind: event.NodeProgress, Phase: event.Build, Node: b.node,
		Text: fmt.Sprintf("%d of %s, %s", b.done, formatCount(int(b.total), "derivation"), b.name)})
}

// handleBuildLog stores a line of a derivation's build log and sends it as an event. A line that is too long for one
// event is sent as several events.
func (b *targetBuild) handleBuildLog(drv, text string) {
	lines := &remote.Lines{Each: func(line string, _ bool) {
		if tail := b.tails[drv]; len(tail) == keepLines {
			b.kept -= len(drv) + len(tail[0])
			b.tails[drv] = tail[1:]
		}
		if b.kept += len(drv) + len(line); b.kept < keepBytes {
			b.tails[drv] = append(b.tails[drv], line)
		}
		b.c.Send.Send(event.Event{Kind: event.NodeLog, Phase: event.Build, Node: b.node, Path: drv, Text: line})
	}}
	fmt.Fprintln(lines, text)
}

func (b *targetBuild) sendWarning(text string) {
	b.c.Send.Send(event.Event{Kind: event.Message, Phase: event.Build, Node: b.node, Level: "warning", Text: text})
}

// newBuildError returns the error of a failed build on the node. It contains the failed derivations, and the last lines
// of their build logs.
func (b *targetBuild) newBuildError(argv []string, err error) error {
	e := &Error{Node: b.node, Phase: event.Build, Step: "build on the node", Argv: argv, Err: err}
	var exit *remote.RunError
	if !errors.As(err, &exit) {
		e.Argv = nil // leave the command out of the message, because the run was cancelled or the connection was lost
		return e
	}
	failed := &nixeval.BuildError{Units: []string{b.node}}
	for _, m := range b.log.Errors {
		if m.Drv == "" || slices.ContainsFunc(failed.Failures, func(f *nixeval.NixError) bool { return f.Drv == m.Drv }) {
			continue
		}
		text, _, _ := strings.Cut(m.Raw, ";\n") // newer versions of Nix append the build log to the message; leave it out
		failed.Failures = append(failed.Failures, &nixeval.NixError{Text: text, Raw: m.Raw, Drv: m.Drv, Log: b.tails[m.Drv]})
	}
	if len(failed.Failures) > 0 {
		e.Err, e.hint = failed, "the full log is on the node: nix log "+failed.Failures[0].Drv
		return e
	}
	e.Stderr = b.log.Output()
	e.Err = fmt.Errorf("nix-store ended with exit status %d", exit.ExitStatus)
	return e
}

// nameOf returns the name of a store path, without folder, hash and the suffix .drv.
func nameOf(path string) string {
	base := path[strings.LastIndexByte(path, '/')+1:]
	if _, name, ok := strings.Cut(base, "-"); ok {
		return strings.TrimSuffix(name, ".drv")
	}
	return base
}
