package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/nixbench/nixbench/deploy/report/frame"
)

//go:embed page.html
var pageHTML string

// Write writes the HTML page about s to w. If before is not nil, the page compares s with before.
func Write(w io.Writer, s Subject, before *Subject) error {
	return frame.Render(w, pageHTML, "", template.FuncMap{"class": phaseClass, "dict": makeDict, "mark": markClass}, newPage(s, before))
}

// makeDict returns a map of the keys and values in pairs, a key before each value. A template uses makeDict to pass
// several values to another template.
func makeDict(pairs ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return out
}

// markClass returns the end of the CSS class for a mark (such as +, which marks an added package).
func markClass(mark string) string {
	switch mark {
	case "+":
		return "-added"
	case "-":
		return "-removed"
	}
	return "-changed"
}
