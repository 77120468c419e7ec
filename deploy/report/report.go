package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed page.html
var files embed.FS

//go:embed style.css
var style string

// Style returns the style of the project's pages. It is embedded in nixbench, so it is safe.
func Style() template.CSS { return template.CSS(style) }

// Write writes the HTML page about s to w. If before is not nil, the page compares s with before.
func Write(w io.Writer, s Subject, before *Subject) error {
	t, err := template.New("page.html").Funcs(template.FuncMap{
		"style": Style,
		"class": phaseClass,
		"dict":  makeDict,
		"mark":  markClass,
	}).ParseFS(files, "page.html")
	if err != nil {
		return err
	}
	var b bytes.Buffer // the page is collected here, so that Write never writes an incomplete page
	if err := t.Execute(&b, newPage(s, before)); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

// makeDict returns a map of pairs, which contains keys and values in turn. A template uses makeDict to pass
// several values to another template.
func makeDict(pairs ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return out
}

// markClass returns the end of the CSS class of the mark of a change.
func markClass(mark string) string {
	switch mark {
	case "+":
		return "-added"
	case "-":
		return "-removed"
	}
	return "-changed"
}
