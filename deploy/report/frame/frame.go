// Package frame has what the pages about runs and about benchmarks have in common: the head with the style, tables, axes, and that a page is written
// completely or not at all. html/template escapes all texts.
package frame

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed frame.html
var parts string

//go:embed style.css
var style string

// Fact is a line of the template facts.
type Fact struct {
	Name, Text string
	Code       bool
}

// Tick is a mark of an axis. At is a position as [Percent] returns it.
type Tick struct{ At, Anchor, Text string }

// Percent returns a part of a whole in the form of CSS and SVG.
func Percent(part, whole float64) string {
	if whole <= 0 {
		return "0%"
	}
	return fmt.Sprintf("%.2f%%", 100*part/whole)
}

// Render executes a template, which may use the templates of this package, and writes the page to w. own is the style of the page beside the common one; it is
// embedded in nixbench, so it is safe.
func Render(w io.Writer, text, own string, funcs template.FuncMap, content any) error {
	t := template.New("page").Funcs(template.FuncMap{"style": func() template.CSS { return template.CSS(style + own) }}).Funcs(funcs)
	for _, part := range []string{parts, text} {
		if _, err := t.Parse(part); err != nil {
			return err
		}
	}
	var b bytes.Buffer // collects the page, so that Render never writes an incomplete page
	if err := t.Execute(&b, content); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}
