package main

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/packages"
)

// writeDiffs writes the packages that change, once for all nodes on which the same ones change.
func writeDiffs(w io.Writer, previews []deploy.Preview) {
	var groups []diffGroup
	for _, p := range previews {
		if p.Diff == nil {
			continue
		}
		i := 0
		for i < len(groups) && !reflect.DeepEqual(groups[i].diff, p.Diff) {
			i++
		}
		if i == len(groups) {
			groups = append(groups, diffGroup{diff: p.Diff})
		}
		groups[i].nodes = append(groups[i].nodes, p.Node)
	}
	for _, g := range groups {
		fmt.Fprintf(w, "\n%s: closure %s\n", strings.Join(g.nodes, ", "), formatGrowth(g.diff.Bytes))
		for _, c := range g.diff.Packages {
			fmt.Fprintln(w, "  "+formatPackageChange(c))
		}
		writeFiles(w, "units", g.diff.Units)
		writeFiles(w, "/etc", g.diff.Etc)
	}
}

// writeFiles writes the files that differ, such as "  units: + new.service ~ nginx.service - old.service".
func writeFiles(w io.Writer, title string, f *packages.Files) {
	if f == nil || f.Empty() {
		return
	}
	var parts []string
	for _, names := range []struct {
		mark  string
		files []string
	}{{"+", f.Added}, {"~", f.Changed}, {"-", f.Removed}} {
		for _, name := range names.files {
			parts = append(parts, names.mark+" "+name)
		}
	}
	const most = 12
	if more := len(parts) - most; more > 1 {
		parts = append(parts[:most], fmt.Sprintf("and %d more", more))
	}
	fmt.Fprintf(w, "  %s: %s\n", title, strings.Join(parts, ", "))
}

// diffGroup is a difference and the nodes that have it.
type diffGroup struct {
	diff  *deploy.DiffPreview
	nodes []string
}

// formatPackageChange formats the change of a package: `+ hello 2.12, +1.9 MiB`, `- hello 2.12` or `~ curl 8.9 → 8.10`.
func formatPackageChange(c packages.Change) string {
	from, to := strings.Join(c.From, ", "), strings.Join(c.To, ", ")
	mark, versions := "~", from
	switch {
	case len(c.From) == 0:
		mark, versions = "+", to
	case len(c.To) == 0:
		mark = "-"
	case from != to:
		versions = from + " → " + to
	}
	text := strings.TrimSpace(mark + " " + c.Name + " " + versions)
	if max(c.Bytes, -c.Bytes) >= 1<<10 {
		text += ", " + formatGrowth(c.Bytes)
	}
	return text
}

// formatGrowth formats a difference of sizes: `+1.9 MiB`.
func formatGrowth(bytes int64) string {
	if bytes < 0 {
		return "-" + ui.FormatSize(-bytes)
	}
	return "+" + ui.FormatSize(bytes)
}
