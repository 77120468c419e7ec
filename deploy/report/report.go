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

// Write makes the page of s. With another run it also compares them: s to what was before.
func Write(w io.Writer, s Subject, before *Subject) error {
	style, err := files.ReadFile("style.css")
	if err != nil {
		return err
	}
	t, err := template.New("page.html").Funcs(template.FuncMap{
		// Ours, from the program itself.
		"style": func() template.CSS { return template.CSS(style) },
		"class": phaseClass,
		"dict":  makeDict,
	}).ParseFS(files, "page.html")
	if err != nil {
		return err
	}
	var b bytes.Buffer // a page is written whole, or not at all
	if err := t.Execute(&b, newPage(s, before)); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

// makeDict lets a template be given more than one thing.
func makeDict(pairs ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return out
}
