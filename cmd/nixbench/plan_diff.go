package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/stages"
)

// writeDiffs writes which packages change. Nodes on which the same packages change share one list.
func writeDiffs(w io.Writer, previews []stages.Preview) {
	var diffs []packages.NodeDiff
	for _, p := range previews {
		diffs = append(diffs, packages.NodeDiff{Node: p.Node, Diff: p.Diff})
	}
	for _, g := range packages.GroupNodes(diffs) {
		writeGrowth(w, g)
		for _, c := range g.Diff.Packages {
			ui.WriteText(w, "  "+formatPackageChange(c), "      ")
		}
		writeFiles(w, "units", g.Diff.Units)
		writeFiles(w, "/etc", g.Diff.Etc)
	}
}

// writeGrowth writes the names of the nodes in a group, and by how much the closure of each node grows.
func writeGrowth(w io.Writer, g packages.Group) {
	fmt.Fprintln(w)
	last := len(g.Nodes) - 1
	ui.WriteList(w, "", append(slices.Clone(g.Nodes[:last]), g.Nodes[last]+": closure "+formatGrowth(g.Diff.Bytes)), "  ")
}

// maxChangedPackages is the maximum number of packages that apply lists for a group of nodes.
const maxChangedPackages = 10

// writeChangedPackages writes which packages a run has changed. It is a short form of writeDiffs, for the end of a run.
func writeChangedPackages(w io.Writer, groups []packages.Group) {
	for _, g := range groups {
		writeGrowth(w, g)
		for i, c := range g.Diff.Packages {
			if more := len(g.Diff.Packages) - i; i == maxChangedPackages && more > 1 {
				fmt.Fprintf(w, "  and %d more packages: nixbench runs show last --html\n", more)
				break
			}
			ui.WriteText(w, "  "+formatPackageChange(c), "      ")
		}
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
	ui.WriteList(w, "  "+title+": ", parts, "    ")
}

// formatPackageChange formats the change of a package: `+ hello 2.12, +1.9 MiB`, `- hello 2.12` or `~ curl 8.9 → 8.10`.
func formatPackageChange(c packages.Change) string {
	text := strings.TrimSpace(c.Mark() + " " + c.Name + " " + c.Versions())
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
