package nixeval

import (
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

const keepLogLines = 20 // number of last lines of each build's log that are kept for its error message

// nixLog reads the stderr of one Nix process. It sends events, and keeps the last lines of each build's log.
type nixLog struct {
	nixlog.Reader
	send      event.Sink
	phase     event.Phase
	fullTrace bool                // errors contain their full trace
	tails     map[string][]string // derivation → last lines of its build log
	builds    [2]int64            // done and total in the last progress event
}

func newNixLog(send event.Sink, phase event.Phase) *nixLog {
	l := &nixLog{send: send, phase: phase, tails: map[string][]string{}}
	l.Reader = nixlog.Reader{Start: l.handleStart, Stop: l.handleStop, Progress: l.handleProgress,
		BuildLog: l.handleBuildLog, Message: l.handleMessage}
	return l
}

func (l *nixLog) handleStart(a nixlog.Activity) {
	switch a.Kind {
	case nixlog.Build:
		l.send.Send(event.Event{Kind: event.BuildStart, Phase: l.phase, Path: a.Path})
	case nixlog.CopyPath:
		l.send.Send(event.Event{Kind: event.CopyStart, Phase: l.phase, Path: a.Path})
	}
}

func (l *nixLog) handleStop(a nixlog.Activity) {
	switch a.Kind {
	case nixlog.Build:
		l.send.Send(event.Event{Kind: event.BuildEnd, Phase: l.phase, Path: a.Path, Failed: l.hasFailed(a.Path)})
	case nixlog.CopyPath:
		l.send.Send(event.Event{Kind: event.CopyEnd, Phase: l.phase, Path: a.Path})
	}
}

// newError converts an error in Nix's log to a [*NixError].
func (l *nixLog) newError(e nixlog.Error) *NixError {
	return &NixError{Text: e.Text, Raw: e.Raw, File: e.File, Line: e.Line, Col: e.Col, Drv: e.Drv, fullTrace: l.fullTrace}
}

// hasFailed reports whether Nix has reported an error for the derivation. Nix reports this error before the end of the build's
// activity.
func (l *nixLog) hasFailed(drv string) bool {
	return slices.ContainsFunc(l.Errors, func(e nixlog.Error) bool { return e.Drv == drv })
}

func (l *nixLog) handleBuildLog(drv, line string) {
	l.tails[drv] = append(nixlog.LastLines(l.tails[drv], keepLogLines-1), line)
	l.send.Send(event.Event{Kind: event.BuildLog, Phase: l.phase, Path: drv, Text: line})
}

func (l *nixLog) handleProgress(a nixlog.Activity, done, total int64) {
	if at := [2]int64{done, total}; a.Kind == nixlog.Builds && at != l.builds {
		l.builds = at
		l.send.Send(event.Event{Kind: event.Progress, Phase: l.phase, Done: int(done), Total: int(total)})
	}
}

func (l *nixLog) handleMessage(level int64, msg string) {
	switch {
	case level == 0 && (strings.HasPrefix(msg, "(use '--show-trace'") || msg == ""):
	case strings.Contains(msg, "SQLite database") && strings.HasSuffix(msg, "is busy"): // left out: concurrent Nix processes wait for each other, which is harmless
	case level <= 1:
		l.sendMessage(msg)
	}
}

// sendMessage sends a warning, or the output of builtins.trace. A trace that begins with the word "warning" is sent as a warning,
// because older versions of Nix print the warnings of NixOS as traces.
func (l *nixLog) sendMessage(msg string) {
	text, traced := strings.CutPrefix(msg, "trace: ")
	for _, prefix := range []string{"warning: ", "evaluation warning: "} {
		if t, ok := strings.CutPrefix(text, prefix); ok {
			text, traced = t, false
		}
	}
	level := "warning"
	if traced {
		level = "trace"
	}
	l.send.Send(event.Event{Kind: event.Message, Phase: l.phase, Level: level, Text: text})
}
