package report

import (
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
)

// maxWarnings is the maximum number of warnings on a page.
const maxWarnings = 200

// warning is a warning or an error of the run.
type warning struct {
	At, Level, Where, Text string
}

// listWarnings returns the first maxWarnings warnings and errors of the run, and the number of the other ones. It leaves out texts that
// problems, the text about the failures of the run, already contains.
func listWarnings(s Subject, problems string) (out []warning, more int) {
	for _, e := range s.Events {
		w := warning{At: explain.Seconds(max(0, e.Time.Sub(s.Time.Started))).String(), Text: e.Text}
		switch {
		case e.Kind == event.Message && (e.Level == "warning" || e.Level == "error"):
			w.Level = e.Level
		case e.Failed:
			w.Level = "error"
			if w.Text == "" {
				w.Text = "failed"
			}
		default:
			continue
		}
		if w.Level == "error" && isRepeated(problems, e) {
			continue
		}
		w.Where = string(e.Phase)
		switch {
		case e.Node != "":
			w.Where = e.Node + " " + w.Where
		case len(e.Units) > 0:
			w.Where = strings.Join(abbreviateNames(e.Units, 4), ", ") + " " + w.Where
		case e.Path != "":
			w.Where = e.Path
		}
		if len(out) == maxWarnings {
			more++
			continue
		}
		out = append(out, w)
	}
	return out, more
}
