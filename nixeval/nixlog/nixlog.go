package nixlog

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"
)

// Kinds of activities in Nix's log (Nix's numbers for them) that a Reader reports. They have been the same since Nix 2.4.
const (
	CopyPath int64 = 100
	Builds   int64 = 104 // the activity of all builds of a Nix process, whose progress is the number of builds
	Build    int64 = 105
)

const (
	resultBuildLogLine  = 101
	resultProgress      = 105
	resultPostBuildHook = 107

	keepErrors   = 1000    // maximum number of errors in Reader.Errors: the first ones, and the last
	keepPlain    = 20      // maximum number of lines in Reader.Plain
	maxActive    = 10_000  // maximum number of activities at the same time; further ones are ignored
	longestPlain = 4 << 10 // maximum number of bytes of a line in Reader.Plain; longer lines are truncated
)

// Activity is a copy of a store path, a build of a derivation, or all builds of the process.
type Activity struct {
	Kind int64  // CopyPath, Build or Builds
	Path string // empty for Builds
}

// Error is an error message of Nix.
type Error struct {
	Text      string // message with position and trace
	Raw       string // message only
	Drv       string // derivation whose build has failed; empty if the message names none
	File      string // file of the position; empty if Nix reports none
	Line, Col int    // position in File
}

// Reader parses the log lines of one Nix process, keeps the errors, and calls its function fields. Each function field may be nil.
// Only one goroutine may use a Reader.
type Reader struct {
	Start    func(Activity)
	Stop     func(Activity) // the activity has ended, successfully or not
	Progress func(a Activity, done, total int64)
	BuildLog func(drv, line string)
	Message  func(level int64, text string) // a message that is not an error

	Errors []Error  // Nix's errors
	Plain  []string // the last lines that are not JSON, such as the output of ssh, of a crash or of a wrapper script

	active map[int64]Activity // Nix's id → activity that has started and not stopped
}

// HandleLine parses one line of Nix's stderr, and calls the function field for what the line contains.
func (r *Reader) HandleLine(line string) {
	text, isJSON := strings.CutPrefix(line, "@nix ")
	if !isJSON || !json.Valid([]byte(text)) { // it limits the depth, unlike gjson.Valid
		if line = StripANSI(line[:min(len(line), longestPlain)]); strings.TrimSpace(line) != "" {
			r.Plain = append(LastLines(r.Plain, keepPlain-1), line)
		}
		return
	}
	m := gjson.Parse(text)
	id := m.Get("id").Int()
	switch m.Get("action").Str {
	case "start":
		r.handleStart(id, m)
	case "stop":
		a, known := r.active[id]
		delete(r.active, id)
		if known && r.Stop != nil {
			r.Stop(a)
		}
	case "result":
		r.handleResult(id, m)
	case "msg":
		r.handleMessage(m)
	}
}

// handleStart handles the start of an activity, if it is of a kind that the Reader reports. id is Nix's number of the activity.
func (r *Reader) handleStart(id int64, m gjson.Result) {
	a := Activity{m.Get("type").Int(), m.Get("fields.0").Str}
	if a.Kind != CopyPath && a.Kind != Builds && a.Kind != Build || len(r.active) >= maxActive {
		return
	}
	if r.active == nil {
		r.active = map[int64]Activity{}
	}
	r.active[id] = a
	if r.Start != nil {
		r.Start(a)
	}
}

// handleResult handles what Nix reports about a running activity: a line of a build log, or progress.
func (r *Reader) handleResult(id int64, m gjson.Result) {
	a, known := r.active[id]
	if !known {
		return
	}
	switch m.Get("type").Int() {
	case resultBuildLogLine, resultPostBuildHook:
		if r.BuildLog != nil {
			r.BuildLog(a.Path, StripANSI(m.Get("fields.0").Str))
		}
	case resultProgress:
		if r.Progress != nil {
			r.Progress(a, m.Get("fields.0").Int(), m.Get("fields.1").Int())
		}
	}
}

// handleMessage keeps an error of Nix in r.Errors, and passes any other message to r.Message.
func (r *Reader) handleMessage(m gjson.Result) {
	text, level := StripANSI(m.Get("msg").Str), m.Get("level").Int()
	switch raw := m.Get("raw_msg"); {
	case level == 0 && raw.Exists():
		e := Error{Text: strings.TrimPrefix(text, "error:"), Raw: StripANSI(raw.Str),
			File: m.Get("file").Str, Line: int(m.Get("line").Int()), Col: int(m.Get("column").Int())}
		if failed := failedDrvRE.FindStringSubmatch(e.Raw); failed != nil {
			e.Drv = failed[1]
		}
		r.Errors = append(r.Errors[:min(len(r.Errors), keepErrors-1)], e)
	case r.Message != nil:
		r.Message(level, text)
	}
}

var failedDrvRE = regexp.MustCompile(`(?s)(?:builder for|Cannot build|build of|hash mismatch in fixed-output derivation|required to build) '(/nix/store/[^']+\.drv)'`)

// Output returns the text of the errors, and the log lines that are not JSON.
func (r *Reader) Output() string {
	var parts []string
	for _, e := range r.Errors {
		parts = append(parts, strings.TrimSpace(e.Text))
	}
	return strings.Join(append(parts, r.Plain...), "\n")
}

// LastLines returns the last n lines, or all lines if there are fewer.
func LastLines(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

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
