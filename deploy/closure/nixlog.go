package closure

import (
	"regexp"
	"strings"

	"github.com/tidwall/gjson"
)

// Activity and result numbers of Nix's internal-json log, unchanged since 2.4.
const (
	actCopyPath = 100
	actBuilds   = 104 // all builds of the process, with their number as progress
	actBuild    = 105

	resBuildLogLine = 101
	resProgress     = 105
)

const (
	keepLines    = 20      // number of lines kept for an error
	longestPlain = 4 << 10 // the rest of a longer line is cut
)

// nixLog reads the stderr of one Nix process in internal-json form. It is used by
// one goroutine.
type nixLog struct {
	started  func(kind int64, path string)                    // an activity that is about path
	stopped  func(kind int64, path string)                    // it has ended, successfully or not
	progress func(kind int64, path string, done, total int64) // in bytes for a copy, in number for builds
	buildLog func(drv, text string)
	warning  func(text string)

	active map[int64]activity
	errors []nixMessage
	plain  []string // lines that are not JSON: from ssh, or a crash
}

type activity struct {
	kind int64
	path string
}

// nixMessage is an error as Nix reports it.
type nixMessage struct {
	text string // with its trace
	raw  string // the message alone
}

func (l *nixLog) line(line string) {
	text, isJSON := strings.CutPrefix(line, "@nix ")
	if !isJSON || !gjson.Valid(text) {
		if line = stripANSI(line[:min(len(line), longestPlain)]); strings.TrimSpace(line) != "" {
			l.plain = keep(l.plain, line)
		}
		return
	}
	r := gjson.Parse(text)
	id := r.Get("id").Int()
	switch r.Get("action").Str {
	case "start":
		l.start(id, r)
	case "stop":
		if a, ok := l.active[id]; ok && l.stopped != nil {
			l.stopped(a.kind, a.path)
		}
		delete(l.active, id)
	case "result":
		l.result(id, r)
	case "msg":
		l.message(r)
	}
}

func (l *nixLog) start(id int64, r gjson.Result) {
	a := activity{r.Get("type").Int(), r.Get("fields.0").Str}
	switch a.kind {
	case actCopyPath, actBuild, actBuilds:
	default:
		return
	}
	if l.active == nil {
		l.active = map[int64]activity{}
	}
	l.active[id] = a
	if l.started != nil {
		l.started(a.kind, a.path)
	}
}

func (l *nixLog) result(id int64, r gjson.Result) {
	a, ok := l.active[id]
	if !ok {
		return
	}
	switch r.Get("type").Int() {
	case resProgress:
		if l.progress != nil {
			l.progress(a.kind, a.path, r.Get("fields.0").Int(), r.Get("fields.1").Int())
		}
	case resBuildLogLine:
		if l.buildLog != nil {
			l.buildLog(a.path, stripANSI(r.Get("fields.0").Str))
		}
	}
}

func (l *nixLog) message(r gjson.Result) {
	msg := stripANSI(r.Get("msg").Str)
	level := r.Get("level").Int()
	if level == 0 && r.Get("raw_msg").Exists() {
		l.errors = append(l.errors, nixMessage{
			text: strings.TrimSpace(strings.TrimPrefix(msg, "error:")),
			raw:  stripANSI(r.Get("raw_msg").Str),
		})
		return
	}
	// The daemon tells an untrusted user about each local setting that it does not
	// follow. None of them matters for a copy.
	text, isWarning := strings.CutPrefix(msg, "warning: ")
	if isWarning && level <= 1 && l.warning != nil && !strings.HasPrefix(text, "ignoring the client-specified setting") {
		l.warning(text)
	}
}

// said returns what the process has printed about its failure.
func (l *nixLog) said() string {
	var parts []string
	for _, e := range l.errors {
		parts = append(parts, e.text)
	}
	return strings.Join(append(parts, l.plain...), "\n")
}

// keep appends a line and drops the oldest one if there are too many.
func keep(lines []string, line string) []string {
	if len(lines) >= keepLines {
		lines = lines[len(lines)-keepLines+1:]
	}
	return append(lines, line)
}

var ansiRE = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\x1b\\][^\x07]*\x07|\x1b[()][A-Z0-9]")

func stripANSI(s string) string { return ansiRE.ReplaceAllString(s, "") }
