package ui

import (
	"io"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
)

// Printable returns a writer that passes each write through [event.Printable], and writes the result to w.
func Printable(w io.Writer) io.Writer { return printableWriter{w} }

type printableWriter struct{ w io.Writer }

func (p printableWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.w, event.Printable(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

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
