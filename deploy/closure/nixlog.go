package closure

import (
	"strings"

	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// newNixLog returns a reader for the stderr of one Nix process. The reader calls warn for each warning.
func newNixLog(warn func(text string)) *nixlog.Reader {
	return &nixlog.Reader{Message: func(level int64, text string) {
		text, isWarning := strings.CutPrefix(text, "warning: ")
		if isWarning && level <= 1 && !isAboutSettings(text) {
			warn(text)
		}
	}}
}

// isAboutSettings reports whether a warning is about a setting that the daemon ignores because it does not trust the
// user. None of these settings matters for a copy.
func isAboutSettings(warning string) bool {
	return strings.HasPrefix(warning, "ignoring the client-specified setting")
}
