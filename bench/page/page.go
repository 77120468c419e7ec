// Package page writes one self-contained HTML page about a sweep. The page contains its style and drawings, has no scripts and loads no
// other files. html/template escapes all texts; no text of a hive or a sweep is marked as safe.
package page

import (
	"bytes"
	_ "embed"
	"html/template"
	"io"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
)

// Input is the content of a page.
type Input struct {
	Sweep   bench.Sweep
	Name    string              // machines or hollow nodes, if the sweep has cells of both kinds, else empty
	Cells   []map[string]string // the cells in the order of the page; each is a map of factors to levels
	Trials  []Trial
	Failed  []Trial // attempts without a result
	Engines string  // the schedulers with their versions
	Claims  []stats.ClaimResult
	Systems []bench.LevelDifference
	Notes   []string // what readers must know, such as: confounded with time
}

// Trial is a trial of the sweep, with one of its attempts. The cell of the trial must be in Input.Cells.
type Trial struct {
	stats.Sample
	bench.Attempt
}

//go:embed page.html
var pageHTML string

// plotHTML has the templates of the plots in the HTML page and in separate SVG files.
//
//go:embed plot.html
var plotHTML string

//go:embed page.css
var style string

// Fact is a line of the template `facts`, which shows a list of names with texts.
type Fact struct {
	Name, Text string
	Code       bool
}

// Tick is a mark on an axis. At is its position, in the format of [percent].
type Tick struct{ At, Anchor, Text string }

func Render(w io.Writer, in Input) error { return execute(w, plotHTML+pageHTML, newView(in)) }

// execute executes a template, and writes its output completely, or nothing.
func execute(w io.Writer, text string, content any) error {
	t, err := template.New("page").Funcs(template.FuncMap{"style": func() template.CSS { return template.CSS(style) }}).Parse(text)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, content); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}
