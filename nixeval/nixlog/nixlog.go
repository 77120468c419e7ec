// Package nixlog parses the stderr of a Nix process that runs with --log-format internal-json.
package nixlog

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/event"
)

// Nix's numbers for kinds of activities and of their results. They have been the same since Nix 2.4.
const (
	activityCopyPath = 100
	activityBuilds   = 104 // all builds of a Nix process, whose progress is the number of builds
	activityBuild    = 105

	resultBuildLogLine  = 101
	resultProgress      = 105
	resultPostBuildHook = 107
)

// Limits for the output of a process, which may be on a node that somebody else controls.
const (
	keepErrors   = 1000     // maximum number of errors in Log.Errors: the first ones, and the last
	keepPlain    = 20       // maximum number of lines in Log.Plain
	keepTail     = 20       // number of last lines of each build's log that are kept
	keepTails    = 16 << 20 // maximum number of bytes of all lines of build logs that are kept
	maxActive    = 10_000   // maximum number of activities at the same time; further ones are ignored
	longestPlain = 4 << 10  // maximum number of bytes of a line in Log.Plain; longer lines are truncated
	longestLine  = 64 << 10 // maximum number of bytes of a line of a build log; longer lines are truncated
)

// Message is an error message of Nix.
type Message struct {
	Text      string // message with position and trace
	Raw       string // message only
	Drv       string // derivation whose build has failed; empty if the message names none
	File      string // file of the position; empty if Nix reports none
	Line, Col int    // position in File
}

// Log parses the log lines of one Nix process, keeps the errors, and sends events. Only one goroutine may use a Log.
type Log struct {
	Send  event.Sink
	Phase event.Phase // the phase of the events

	Errors []Message // Nix's errors
	Plain  []string  // the last lines that are not JSON, such as the output of ssh, of a crash or of a wrapper script

	active map[int64]activity  // Nix's id → activity that has started and not stopped
	builds [2]int64            // done and total in the last progress event
	tails  map[string][]string // derivation → last lines of its build log
	kept   int                 // number of bytes in tails
}

// activity is a copy of a store path, a build of a derivation, or all builds of the process.
type activity struct {
	kind int64
	path string // empty for activityBuilds
}

// HandleLine parses one line of Nix's stderr.
func (l *Log) HandleLine(line string) {
	text, isJSON := strings.CutPrefix(line, "@nix ")
	if !isJSON || !json.Valid([]byte(text)) { // json.Valid limits the depth, unlike gjson.Valid
		if line = StripANSI(line[:min(len(line), longestPlain)]); strings.TrimSpace(line) != "" {
			l.Plain = append(l.Plain[max(0, len(l.Plain)-keepPlain+1):], line)
		}
		return
	}
	m := gjson.Parse(text)
	id := m.Get("id").Int()
	switch m.Get("action").Str {
	case "start":
		a := activity{m.Get("type").Int(), m.Get("fields.0").Str}
		if a.kind != activityCopyPath && a.kind != activityBuilds && a.kind != activityBuild || len(l.active) >= maxActive {
			return
		}
		if l.active == nil {
			l.active, l.tails = map[int64]activity{}, map[string][]string{}
		}
		l.active[id] = a
		l.sendChange(a, event.BuildStart, event.CopyStart)
	case "stop":
		l.sendChange(l.active[id], event.BuildEnd, event.CopyEnd)
		delete(l.active, id)
	case "result":
		if a, known := l.active[id]; known {
			l.handleResult(a, m)
		}
	case "msg":
		l.handleMessage(m)
	}
}

// sendChange sends an event for the start or the end of an activity. Nix reports the error of a failed build before the end of the
// build's activity.
func (l *Log) sendChange(a activity, build, path event.Kind) {
	switch a.kind {
	case activityBuild:
		failed := slices.ContainsFunc(l.Errors, func(e Message) bool { return e.Drv == a.path })
		l.Send.Send(event.Event{Kind: build, Phase: l.Phase, Path: a.path, Failed: failed && build == event.BuildEnd})
	case activityCopyPath:
		l.Send.Send(event.Event{Kind: path, Phase: l.Phase, Path: a.path})
	}
}

// handleResult handles what Nix reports about a running activity: a line of a build log, or progress.
func (l *Log) handleResult(a activity, m gjson.Result) {
	switch m.Get("type").Int() {
	case resultBuildLogLine, resultPostBuildHook:
		line := StripANSI(m.Get("fields.0").Str)
		line = strings.ToValidUTF8(line[:min(len(line), longestLine)], "")
		if tail := l.tails[a.path]; len(tail) == keepTail {
			l.kept -= len(a.path) + len(tail[0])
			l.tails[a.path] = tail[1:]
		}
		if size := len(a.path) + len(line); l.kept+size <= keepTails {
			l.kept += size
			l.tails[a.path] = append(l.tails[a.path], line)
		}
		l.Send.Send(event.Event{Kind: event.BuildLog, Phase: l.Phase, Path: a.path, Text: line})
	case resultProgress:
		if at := [2]int64{m.Get("fields.0").Int(), m.Get("fields.1").Int()}; a.kind == activityBuilds && at != l.builds {
			l.builds = at
			l.Send.Send(event.Event{Kind: event.Progress, Phase: l.Phase, Done: int(at[0]), Total: int(at[1])})
		}
	}
}

var failedDrvRE = regexp.MustCompile(`(?s)(?:builder for|Cannot build|build of|hash mismatch in fixed-output derivation|required to build) '(/nix/store/[^']+\.drv)'`)

// handleMessage keeps an error of Nix, and sends a warning or the output of builtins.trace as an event.
func (l *Log) handleMessage(m gjson.Result) {
	text, level := StripANSI(m.Get("msg").Str), m.Get("level").Int()
	switch raw := m.Get("raw_msg"); {
	case level == 0 && raw.Exists():
		e := Message{Text: strings.TrimPrefix(text, "error:"), Raw: StripANSI(raw.Str),
			File: m.Get("file").Str, Line: int(m.Get("line").Int()), Col: int(m.Get("column").Int())}
		if failed := failedDrvRE.FindStringSubmatch(e.Raw); failed != nil {
			e.Drv = failed[1]
		}
		l.Errors = append(l.Errors[:min(len(l.Errors), keepErrors-1)], e)
	case level > 1, text == "", strings.HasPrefix(text, "(use '--show-trace'"):
	case strings.Contains(text, "SQLite database") && strings.HasSuffix(text, "is busy"): // left out: concurrent Nix processes wait for each other, which is harmless
	default:
		l.sendMessage(text)
	}
}

// sendMessage sends a warning, or the output of builtins.trace. A trace that begins with the word "warning" is sent as a warning,
// because older versions of Nix print the warnings of NixOS as traces.
func (l *Log) sendMessage(msg string) {
	text, traced := strings.CutPrefix(msg, "trace: ")
	for _, prefix := range []string{"warning: ", "evaluation warning: "} {
		if t, ok := strings.CutPrefix(text, prefix); ok {
			text, traced = t, false
		}
	}
	if strings.HasPrefix(text, "you don't have Internet access") { // Nix fails later if it needs the network
		return
	}
	level := "warning"
	if traced {
		level = "trace"
	}
	l.Send.Send(event.Event{Kind: event.Message, Phase: l.Phase, Level: level, Text: text})
}

// Tail returns the last lines of a derivation's build log.
func (l *Log) Tail(drv string) []string { return l.tails[drv] }

// Output returns the text of the errors, and the log lines that are not JSON.
func (l *Log) Output() string {
	var parts []string
	for _, e := range l.Errors {
		parts = append(parts, strings.TrimSpace(e.Text))
	}
	return strings.Join(append(parts, l.Plain...), "\n")
}

var ansiRE = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[()][A-Z0-9]")

// StripANSI removes escape sequences, and all control characters except newlines and tabs.
func StripANSI(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, ansiRE.ReplaceAllString(s, ""))
}
