package ui

import (
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy/event"
)

// minColumns is the smallest width to which tables and lists are fitted, even on a narrower terminal.
const minColumns = 40

// Columns returns the width of the terminal to which w writes; 0: w is not a terminal, so that the length of lines is not limited.
func Columns(w io.Writer) int {
	columns, _ := terminalSize(w)
	if w, ok := w.(interface{ Columns() int }); ok {
		columns = w.Columns()
	}
	if columns == 0 {
		return 0
	}
	return max(columns, minColumns)
}

// terminalSize returns the size of the terminal to which w writes, or zeros if w is not a terminal.
func terminalSize(w io.Writer) (width, height int) {
	if f, ok := w.(*os.File); ok {
		width, height, _ = term.GetSize(int(f.Fd()))
	}
	return width, height
}

// WriteList writes prefix and the items, separated by commas. On a terminal the lines break only between items, and
// the next lines begin with indent.
func WriteList(w io.Writer, prefix string, items []string, indent string) {
	parts := strings.Split(strings.Join(items, ",\n"), "\n")
	io.WriteString(w, fill(prefix, parts, " ", indent, Columns(w))+"\n")
}

// WriteText writes lines of text. On a terminal they break between words.
func WriteText(w io.Writer, text string) { io.WriteString(w, wrap(text, Columns(w))+"\n") }

// wrap breaks the lines of a text between words, so that they have at most width columns; 0: there is no limit. The parts of a line
// are indented by two more columns than its beginning.
func wrap(text string, width int) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))] + "  "
		lines[i] = fill("", strings.Split(line, " "), " ", indent, width)
	}
	return strings.Join(lines, "\n")
}

// colours matches the escape sequences of [style], which have no width.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// fill joins prefix and the parts to lines of at most width columns; with width 0, to one line. It breaks lines only between
// parts. A part that is longer than a line gets its own line.
func fill(prefix string, parts []string, separator, indent string, width int) string {
	var b strings.Builder
	b.WriteString(prefix)
	column, empty := utf8.RuneCountInString(prefix), true
	for _, part := range parts {
		n := utf8.RuneCountInString(colours.ReplaceAllString(part, ""))
		switch {
		case empty:
		case width > 0 && column+len(separator)+n > width:
			b.WriteString("\n" + indent)
			column = utf8.RuneCountInString(indent)
		default:
			b.WriteString(separator)
			column += len(separator)
		}
		b.WriteString(part)
		column, empty = column+n, false
	}
	return b.String()
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

func (p printableWriter) Columns() int { return Columns(p.w) }

// printableEvent returns the event with printable text.
func printableEvent(e event.Event) event.Event {
	e.Node, e.Path, e.Level, e.Text = event.Printable(e.Node), event.Printable(e.Path), event.Printable(e.Level), event.Printable(e.Text)
	return e
}

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
