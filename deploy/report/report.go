package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed page.html style.css
var files embed.FS

// Write writes the HTML page about s to w. If before is not nil, the page compares s with before.
func Write(w io.Writer, s Subject, before *Subject) error {
	style, err := files.ReadFile("style.css")
	if err != nil {
		return err
	}
	t, err := template.New("page.html").Funcs(template.FuncMap{
		// The style is embedded in nixbench, so it is safe.
		"style": func() template.CSS { return template.CSS(style) },
		"class": phaseClass,
		"dict":  makeDict,
	}).ParseFS(files, "page.html")
	if err != nil {
		return err
	}
	var b bytes.Buffer // collects the page, so that Write never writes an incomplete page
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
