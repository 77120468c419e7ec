package ui

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Column is a column of a table that has a row for each value of type T.
type Column[T any] struct {
	Title    string
	Format   func(T) string // the text of the cell; an empty text is shown as "-"
	Optional bool           // the table has the column only if a row has a text in it
}

// Rows returns the rows of a table, the first of which has the titles.
func Rows[T any](columns []Column[T], values []T) []Row {
	rows := make([]Row, len(values)+1)
	for _, c := range columns {
		if c.Optional && !slices.ContainsFunc(values, func(v T) bool { return c.Format(v) != "" }) {
			continue
		}
		rows[0] = append(rows[0], c.Title)
		for i, v := range values {
			rows[i+1] = append(rows[i+1], cmp.Or(c.Format(v), "-"))
		}
	}
	return rows
}

// Table writes rows in columns. The first row is the header. If the table is wider than the terminal, the last columns of each row are
// written below it, with their titles.
func Table(w io.Writer, rows []Row) {
	if len(rows) > 0 {
		rows = printableRows(rows)
		writeColumns(w, rows, rows[0], Columns(w))
	}
}

// List writes rows in columns, without a header. It fits them into the terminal as [Table] does.
func List(w io.Writer, rows []Row) { writeColumns(w, printableRows(rows), nil, Columns(w)) }

// columnGap is the number of spaces between two columns.
const columnGap = 2

func columnWidths(rows []Row) (widths []int) {
	for _, r := range rows {
		for i, cell := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

func tableWidth(widths []int) int {
	sum := 0
	for _, n := range widths {
		sum += n + columnGap
	}
	return max(sum-columnGap, 0)
}

// writeColumns writes rows in columns, so that they fit into width; 0: there is no limit. header is the first row, or nil.
func writeColumns(w io.Writer, rows []Row, header Row, width int) {
	widths := columnWidths(rows)
	columns := len(widths) // of the row itself
	for columns > 1 && width > 0 && tableWidth(widths[:columns]) > width {
		columns--
	}
	for i, r := range rows {
		fmt.Fprintln(w, joinCells(r[:min(columns, len(r))], widths))
		if i == 0 && header != nil {
			continue
		}
		var parts []string // the other cells, each as "TITLE value", in several lines if it is too long
		for j := columns; j < len(r); j++ {
			if r[j] == "" || r[j] == "-" {
				continue
			}
			text := r[j]
			if j < len(header) {
				text = strings.TrimLeft(header[j]+" "+text, " ")
			}
			parts = append(parts, fill("", strings.Split(text, " "), " ", "    ", width-4))
		}
		if len(parts) > 0 {
			fmt.Fprintln(w, fill("    ", parts, "  ", "    ", width))
		}
	}
}

func joinCells(r Row, widths []int) string {
	var b strings.Builder
	for i, cell := range r {
		b.WriteString(padRight(cell, widths[i]+columnGap))
	}
	return strings.TrimRight(b.String(), " ")
}
