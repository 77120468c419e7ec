package closure

import (
	"strings"

	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// nixLog reads the stderr of one Nix process and keeps its errors.
type nixLog struct {
	nixlog.Reader
	errors []nixlog.Error
}

// newNixLog returns a log that calls warn for each warning. warn may be nil.
func newNixLog(warn func(text string)) *nixLog {
	l := &nixLog{}
	l.Error = func(e nixlog.Error) { l.errors = append(l.errors, e) }
	l.Message = func(level int64, text string) {
		// The daemon sends an untrusted user a warning about each local setting that it ignores. None
		// of these settings matters for a copy.
		text, isWarning := strings.CutPrefix(text, "warning: ")
		if isWarning && level <= 1 && warn != nil && !strings.HasPrefix(text, "ignoring the client-specified setting") {
			warn(text)
		}
	}
	return l
}

// output returns the errors and the lines outside Nix's log format that the process has printed.
func (l *nixLog) output() string {
	var parts []string
	for _, e := range l.errors {
		parts = append(parts, strings.TrimSpace(e.Text))
	}
	return strings.Join(append(parts, l.Plain...), "\n")
}
