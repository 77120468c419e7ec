// Package frame contains the parts of an HTML page that do not depend on its content: the head with the style, and tables. A page is
// written completely or not at all. html/template escapes all texts.
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

// Fact is a line of the template `facts`, which shows a list of names with texts.
type Fact struct {
	Name, Text string
	Code       bool
}

// Tick is a mark on an axis. At is its position, in the format of [Percent].
type Tick struct{ At, Anchor, Text string }

// Percent returns part as a percentage of whole, in the syntax of CSS and SVG.
func Percent(part, whole float64) string {
	if whole <= 0 {
		return "0%"
	}
	return fmt.Sprintf("%.2f%%", 100*part/whole)
}

// Render executes a template, which may use the templates of this package, and writes the page to w. own is the page's own style, which
// is added to the common style. It need not be escaped, because it is embedded in nixbench.
func Render(w io.Writer, text, own string, content any) error {
	t := template.New("page").Funcs(template.FuncMap{"style": func() template.CSS { return template.CSS(style + own) }})
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
