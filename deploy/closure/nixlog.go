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

// maxErrors is the maximal number of errors that a nixLog keeps.
const maxErrors = 100

// newNixLog returns a log that calls warn for each warning. warn may be nil.
func newNixLog(warn func(text string)) *nixLog {
	l := &nixLog{}
	l.Error = func(e nixlog.Error) {
		if len(l.errors) < maxErrors {
			l.errors = append(l.errors, e)
		}
	}
	l.Message = func(level int64, text string) {
		text, isWarning := strings.CutPrefix(text, "warning: ")
		if isWarning && level <= 1 && warn != nil && !isAboutSettings(text) {
			warn(text)
		}
	}
	return l
}

// isAboutSettings reports whether a warning is about a setting that the daemon ignores because it does not trust the
// user. None of these settings matters for a copy.
func isAboutSettings(warning string) bool {
	return strings.HasPrefix(warning, "ignoring the client-specified setting")
}

// output returns the errors and the lines outside Nix's log format that the process has printed.
func (l *nixLog) output() string {
	var parts []string
	for _, e := range l.errors {
		parts = append(parts, strings.TrimSpace(e.Text))
	}
	return strings.Join(append(parts, l.Plain...), "\n")
}
