package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"
)

// table contains measurements, which may have a budget, and prints them.
type table struct {
	rows   [][3]string // name, measured value, and budget or an empty text
	broken int         // number of exceeded budgets
}

func (t *table) addRow(what, figure string) { t.rows = append(t.rows, [3]string{what, figure, ""}) }

// addBudget adds a row with a budget. kept means that the measured value is within the budget.
func (t *table) addBudget(what, figure, budget string, kept bool) {
	if !kept {
		budget += "  BROKEN"
		t.broken++
	}
	t.rows = append(t.rows, [3]string{what, figure, budget})
}

// print prints the table. It returns an error if a budget is exceeded.
func (t *table) print() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\tmeasured\tbudget")
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\n", r[0], r[1], r[2])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if t.broken > 0 {
		return fmt.Errorf("%d over budget", t.broken)
	}
	return nil
}

func formatSeconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
func formatMegabytes(bytes int64) string   { return fmt.Sprintf("%d MB", bytes>>20) }

func formatPerNode(d time.Duration, nodes int) string {
	return fmt.Sprintf("%.1f ms", (d/time.Duration(nodes)).Seconds()*1000)
}
