package ui

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table writes rows in columns. The first row is the header. If the table is wider than the terminal, Table
//
//  1. leaves out the columns whose titles are in leaveOut, in this order, as far as this is necessary and enough,
//  2. or wraps the last column under itself,
//  3. or writes the last columns of each row below it, with their titles.
//
// It returns the titles of the columns that it left out.
func Table(w io.Writer, rows []Row, leaveOut ...string) (left []string) {
	if len(rows) == 0 {
		return nil
	}
	rows = printableRows(rows)
	width := Columns(w)
	if reduced, titles := dropColumns(rows, leaveOut, width); fits(reduced, width) {
		rows, left = reduced, titles
	}
	writeColumns(w, rows, rows[0], width)
	return left
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

// tableWidth returns the width of a table with these columns.
func tableWidth(widths []int) int {
	sum := 0
	for _, n := range widths {
		sum += n + columnGap
	}
	return max(sum-columnGap, 0)
}

// fits reports whether the rows fit into a terminal of this width. A width of 0 is no limit.
func fits(rows []Row, width int) bool { return width == 0 || tableWidth(columnWidths(rows)) <= width }

// dropColumns leaves out columns until the other columns fit into width. leaveOut are the titles of the columns to leave out, in
// this order. Then it adds those of them again for which there is room. It returns the rows, and the titles of the columns left
// out, in the order of the table.
func dropColumns(rows []Row, leaveOut []string, width int) ([]Row, []string) {
	dropped := map[string]bool{}
	kept := func() []Row {
		out := make([]Row, len(rows))
		for i, r := range rows {
			for j, cell := range r {
				if j >= len(rows[0]) || !dropped[rows[0][j]] {
					out[i] = append(out[i], cell)
				}
			}
		}
		return out
	}
	for _, title := range leaveOut {
		if fits(kept(), width) {
			break
		}
		dropped[title] = true
	}
	for _, title := range slices.Backward(leaveOut) {
		if dropped[title] {
			if dropped[title] = false; !fits(kept(), width) {
				dropped[title] = true
			}
		}
	}
	var titles []string
	for _, title := range rows[0] {
		if dropped[title] {
			titles = append(titles, title)
		}
	}
	return kept(), titles
}

// wrapRoom is the minimum width of a last column whose texts are wrapped into several lines.
const wrapRoom = 30

// writeColumns writes rows in columns, so that they fit into width; 0: there is no limit. header is the first row, or nil.
func writeColumns(w io.Writer, rows []Row, header Row, width int) {
	widths := columnWidths(rows)
	if width == 0 || tableWidth(widths) <= width {
		for _, r := range rows {
			fmt.Fprintln(w, joinCells(r, widths))
		}
		return
	}
	last := len(widths) - 1
	begin := tableWidth(widths[:last])
	if last > 0 {
		begin += columnGap
	}
	if room := width - begin; room >= longestWord(rows, last) && room >= min(widths[last]/2, wrapRoom) {
		for _, r := range rows {
			prefix, words := joinCells(r, widths), []string(nil)
			if len(r) > last {
				prefix, words = padRight(joinCells(r[:last], widths), begin), strings.Split(r[last], " ")
			}
			fmt.Fprintln(w, strings.TrimRight(fill(prefix, words, " ", strings.Repeat(" ", begin), width), " "))
		}
		return
	}
	columns := 1 // of the row itself
	for columns < len(widths) && tableWidth(widths[:columns+1]) <= width {
		columns++
	}
	for i, r := range rows {
		fmt.Fprintln(w, joinCells(r[:min(columns, len(r))], widths))
		if i == 0 && header != nil {
			continue
		}
		if parts := labelCells(r, header, columns); len(parts) > 0 {
			fmt.Fprintln(w, fill("    ", parts, "  ", "    ", width))
		}
	}
}

// labelCells returns the cells of row r, from column begin on, each as "TITLE value". It leaves out empty cells.
func labelCells(r, header Row, begin int) (parts []string) {
	for j := begin; j < len(r); j++ {
		if r[j] == "" || r[j] == "-" {
			continue
		}
		title := ""
		if j < len(header) {
			title = header[j] + " "
		}
		parts = append(parts, strings.TrimLeft(title+r[j], " "))
	}
	return parts
}

func joinCells(r Row, widths []int) string {
	var b strings.Builder
	for i, cell := range r {
		b.WriteString(padRight(cell, widths[i]+columnGap))
	}
	return strings.TrimRight(b.String(), " ")
}

func longestWord(rows []Row, column int) int {
	longest := 0
	for _, r := range rows {
		if len(r) > column {
			for _, word := range strings.Fields(r[column]) {
				longest = max(longest, utf8.RuneCountInString(word))
			}
		}
	}
	return longest
}
