package ui

import (
	"fmt"
	"io"
	"strings"
)

// Table writes rows in columns. The first row is the header.
func Table(w io.Writer, rows []Row) {
	var widths []int
	for _, r := range rows {
		for i, cell := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, cell := range r {
			b.WriteString(padRight(cell, widths[i]+2))
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}
