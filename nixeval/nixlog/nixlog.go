package nixlog

import (
	"regexp"
	"strings"

	"github.com/tidwall/gjson"
)

// Kinds of activities in the log, as far as they are used here. They have not changed since Nix 2.4.
const (
	CopyPath int64 = 100
	Builds   int64 = 104 // all builds of the process; its progress is the number of builds
	Build    int64 = 105
)

const (
	resultBuildLogLine  = 101
	resultProgress      = 105
	resultPostBuildHook = 107

	keepPlain    = 20
	longestPlain = 4 << 10 // the rest of a longer plain line is cut
)

// Activity is a copy or a build of a path, or all builds of the process.
type Activity struct {
	Kind int64
	Path string
}

// Error is an error message of Nix.
type Error struct {
	Text      string // with position and trace
	Raw       string // only the message
	File      string // position, if Nix reports one
	Line, Col int
}

// Reader parses the lines of one Nix process and calls its functions, of which each may be nil.
// Only one goroutine may use it.
type Reader struct {
	Start    func(Activity)
	Stop     func(Activity) // the activity has ended, successfully or not
	Progress func(a Activity, done, total int64)
	BuildLog func(drv, line string)
	Error    func(Error)
	Message  func(level int64, text string) // any other message

	Plain []string // the last lines that are not JSON, for example of ssh, a crash or a wrapper script

	active map[int64]Activity
}

// HandleLine parses one line.
func (r *Reader) HandleLine(line string) {
	text, isJSON := strings.CutPrefix(line, "@nix ")
	if !isJSON || !gjson.Valid(text) {
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

func (r *Reader) handleStart(id int64, m gjson.Result) {
	a := Activity{m.Get("type").Int(), m.Get("fields.0").Str}
	if a.Kind != CopyPath && a.Kind != Builds && a.Kind != Build {
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

func (r *Reader) handleMessage(m gjson.Result) {
	text, level := StripANSI(m.Get("msg").Str), m.Get("level").Int()
	switch raw := m.Get("raw_msg"); {
	case level == 0 && raw.Exists():
		if r.Error != nil {
			r.Error(Error{Text: strings.TrimPrefix(text, "error:"), Raw: StripANSI(raw.Str),
				File: m.Get("file").Str, Line: int(m.Get("line").Int()), Col: int(m.Get("column").Int())})
		}
	case r.Message != nil:
		r.Message(level, text)
	}
}

// LastLines returns the last n lines.
func LastLines(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

var ansiRE = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[()][A-Z0-9]")

// StripANSI removes escape sequences and control characters.
func StripANSI(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, ansiRE.ReplaceAllString(s, ""))
}
