package nixeval

import (
	"regexp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/event"
)

// Numbers of activities and results in Nix's internal-json log, as far as they are used here. They
// have not changed since Nix 2.4.
const (
	actCopyPath = 100
	actBuilds   = 104 // all builds of the process; its progress is the number of builds
	actBuild    = 105

	resBuildLogLine  = 101
	resProgress      = 105
	resPostBuildHook = 107
)

const (
	keepLogLines   = 20 // kept per build for its error message
	keepPlainLines = 20 // kept of stderr that is not JSON
)

// nixLog reads the stderr of one Nix process in internal-json format. It sends events and keeps
// what an error message needs. Only one goroutine may use it.
type nixLog struct {
	send   event.Sink
	phase  event.Phase
	full   bool // show errors with their full trace
	active map[int64]*activity
	tails  map[string][]string // derivation → last lines of its build log

	errors []*NixError // in the order in which Nix reported them
	plain  []string    // lines that are not JSON, for example of a crash or a wrapper script
}

type activity struct {
	kind int64
	path string
	at   [2]int // done and total in the last progress event
}

func newNixLog(send event.Sink, phase event.Phase) *nixLog {
	return &nixLog{send: send, phase: phase, active: map[int64]*activity{}, tails: map[string][]string{}}
}

func (l *nixLog) handleLine(line string) {
	text, isJSON := strings.CutPrefix(line, "@nix ")
	if !isJSON || !gjson.Valid(text) {
		if line = stripANSI(line); strings.TrimSpace(line) != "" {
			l.plain = append(lastLines(l.plain, keepPlainLines-1), line)
		}
		return
	}
	switch r := gjson.Parse(text); r.Get("action").Str {
	case "start":
		l.handleStart(r)
	case "stop":
		l.handleStop(r.Get("id").Int())
	case "result":
		l.handleResult(r)
	case "msg":
		l.handleMessage(r)
	}
}

func (l *nixLog) handleStart(r gjson.Result) {
	a := &activity{kind: r.Get("type").Int(), path: r.Get("fields.0").Str}
	switch a.kind {
	case actBuild:
		l.send.Send(event.Event{Kind: event.BuildStart, Phase: l.phase, Path: a.path})
	case actCopyPath:
		l.send.Send(event.Event{Kind: event.CopyStart, Phase: l.phase, Path: a.path})
	case actBuilds:
	default:
		return
	}
	l.active[r.Get("id").Int()] = a
}

func (l *nixLog) handleStop(id int64) {
	a, ok := l.active[id]
	if !ok {
		return
	}
	delete(l.active, id)
	switch a.kind {
	case actBuild:
		l.send.Send(event.Event{Kind: event.BuildEnd, Phase: l.phase, Path: a.path, Failed: l.hasFailed(a.path)})
	case actCopyPath:
		l.send.Send(event.Event{Kind: event.CopyEnd, Phase: l.phase, Path: a.path})
	}
}

// hasFailed reports whether an error names the derivation. Nix reports a failed build before it
// ends the activity.
func (l *nixLog) hasFailed(drv string) bool {
	for _, e := range l.errors {
		if e.Drv == drv {
			return true
		}
	}
	return false
}

func (l *nixLog) handleResult(r gjson.Result) {
	a := l.active[r.Get("id").Int()]
	if a == nil {
		return
	}
	switch r.Get("type").Int() {
	case resBuildLogLine, resPostBuildHook:
		text := stripANSI(r.Get("fields.0").Str)
		l.tails[a.path] = append(lastLines(l.tails[a.path], keepLogLines-1), text)
		l.send.Send(event.Event{Kind: event.BuildLog, Phase: l.phase, Path: a.path, Text: text})
	case resProgress:
		at := [2]int{int(r.Get("fields.0").Int()), int(r.Get("fields.1").Int())}
		if a.kind == actBuilds && at != a.at {
			a.at = at
			l.send.Send(event.Event{Kind: event.Progress, Phase: l.phase, Done: at[0], Total: at[1]})
		}
	}
}

var failedDrvRE = regexp.MustCompile(`(?s)(?:builder for|Cannot build|hash mismatch in fixed-output derivation|required to build) '(/nix/store/[^']+\.drv)'`)

func (l *nixLog) handleMessage(r gjson.Result) {
	msg := stripANSI(r.Get("msg").Str)
	level := r.Get("level").Int()
	switch {
	case r.Get("raw_msg").Exists() && level == 0:
		e := &NixError{
			Text: strings.TrimPrefix(msg, "error:"),
			Raw:  stripANSI(r.Get("raw_msg").Str),
			File: r.Get("file").Str,
			Line: int(r.Get("line").Int()),
			Col:  int(r.Get("column").Int()),
			full: l.full,
		}
		if m := failedDrvRE.FindStringSubmatch(e.Raw); m != nil {
			e.Drv = m[1]
		}
		l.errors = append(l.errors, e)
	case level == 0 && (strings.HasPrefix(msg, "(use '--show-trace'") || msg == ""):
	case strings.Contains(msg, "SQLite database") && strings.HasSuffix(msg, "is busy"): // harmless: concurrent Nix processes wait for each other
	case level <= 1:
		l.sendMessage(msg)
	}
}

// sendMessage sends warnings and the output of builtins.trace. Older versions of Nix print NixOS's
// warnings as traces.
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

// lastLines returns the last n lines.
func lastLines(lines []string, n int) []string {
	if len(lines) > n {
		return lines[len(lines)-n:]
	}
	return lines
}

var ansiRE = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[()][A-Z0-9]")

// stripANSI removes escape sequences and control characters.
func stripANSI(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, ansiRE.ReplaceAllString(s, ""))
}
