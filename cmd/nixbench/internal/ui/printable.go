package ui

import (
	"io"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
)

// printable passes all text that a renderer shows through [event.Printable]. So a text from elsewhere (a node, a log, the name of
// a store path) cannot control the terminal. Colours and cursor movements of the renderer itself are not affected.
type printable struct{ renderer }

func (p printable) showEvent(e event.Event) { p.renderer.showEvent(printableEvent(e)) }

func (p printable) showWaits(late []event.Event) {
	for i := range late {
		late[i] = printableEvent(late[i])
	}
	p.renderer.showWaits(late)
}

func (p printable) showOutput(node, line string) {
	p.renderer.showOutput(clean(node), clean(line))
}

func (p printable) showResult(value any, human func(io.Writer)) {
	p.renderer.showResult(value, func(w io.Writer) { human(Printable(w)) })
}

func (p printable) showProblems(code int, problems []Problem) {
	var out []Problem
	for _, q := range problems {
		out = append(out, Problem{clean(q.Where), clean(q.Message), clean(q.Hint)})
	}
	p.renderer.showProblems(code, out)
}

func printableEvent(e event.Event) event.Event {
	e.Node, e.Path, e.Level, e.Text = clean(e.Node), clean(e.Path), clean(e.Level), clean(e.Text)
	return e
}

// maxText is the maximum size of one text of an event, in bytes. Only a program that prints without an end causes a longer text.
const maxText = 1 << 20

func clean(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return event.Printable(text)
}

// Printable returns a writer that passes each write through [event.Printable], and writes the result to w.
func Printable(w io.Writer) io.Writer { return printableWriter{w} }

type printableWriter struct{ w io.Writer }

func (p printableWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.w, event.Printable(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Columns returns the width of the terminal, or 0. See [Columns].
func (p printableWriter) Columns() int { return Columns(p.w) }

// printableRows returns the rows with printable text, and with only one line in each cell.
func printableRows(rows []Row) []Row {
	out := make([]Row, len(rows))
	for i, r := range rows {
		for _, cell := range r {
			out[i] = append(out[i], strings.NewReplacer("\n", " ", "\t", " ").Replace(event.Printable(cell)))
		}
	}
	return out
}
