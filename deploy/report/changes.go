package report

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/nixeval"
)

// maxChanges is the maximum number of packages, and the maximum number of files, that the page lists for a change.
const maxChanges = 100

// change contains the differences that the run made in the systems of the nodes in Nodes.
type change struct {
	Nodes    []string
	Growth   string
	Packages []packageChange
	Files    []fileChanges
	More     int // number of packages that are not listed
}

type packageChange struct{ Mark, Name, Versions, Growth string }

// fileChanges lists the systemd units that changed, or the other files in /etc that changed.
type fileChanges struct {
	Title string
	Items []fileChange
	More  int
}

type fileChange struct{ Mark, Name string }

// readChanges decodes the changes that a run has recorded, and removes control characters. It returns nil if the run has recorded none.
func readChanges(data json.RawMessage) ([]packages.Group, error) {
	if data == nil {
		return nil, nil
	}
	var groups []packages.Group
	if err := json.Unmarshal(data, &groups); err != nil {
		return nil, fmt.Errorf("changes.json is damaged: %w", err)
	}
	groups = slices.DeleteFunc(groups, func(g packages.Group) bool { return g.Diff == nil })
	strip := func(names []string) {
		for i := range names {
			names[i] = stripControls(names[i])
		}
	}
	for _, g := range groups {
		strip(g.Nodes)
		for i := range g.Diff.Packages {
			p := &g.Diff.Packages[i]
			p.Name = stripControls(p.Name)
			strip(p.From)
			strip(p.To)
		}
		for _, f := range []*packages.Files{g.Diff.Units, g.Diff.Etc} {
			if f != nil {
				strip(f.Added)
				strip(f.Changed)
				strip(f.Removed)
			}
		}
	}
	return groups, nil
}

// listChanges returns the sections of the page about changed packages and files, one for each group of nodes with the same changes.
func listChanges(groups []packages.Group) []change {
	var out []change
	for _, g := range groups {
		nodes := slices.SortedFunc(slices.Values(g.Nodes), nixeval.CompareNatural)
		c := change{Nodes: abbreviateNames(nodes, 12), Growth: formatGrowth(g.Diff.Bytes)}
		for _, p := range g.Diff.Packages {
			if len(c.Packages) == maxChanges {
				c.More++
				continue
			}
			one := packageChange{Mark: p.Mark(), Name: p.Name, Versions: p.Versions()}
			if p.Bytes >= 1<<10 || p.Bytes <= -1<<10 {
				one.Growth = formatGrowth(p.Bytes)
			}
			c.Packages = append(c.Packages, one)
		}
		for _, f := range []struct {
			title string
			files *packages.Files
		}{{"Units", g.Diff.Units}, {"Files of /etc", g.Diff.Etc}} {
			if f.files != nil && !f.files.Empty() {
				c.Files = append(c.Files, listFiles(f.title, f.files))
			}
		}
		out = append(out, c)
	}
	return out
}

func listFiles(title string, files *packages.Files) fileChanges {
	out := fileChanges{Title: title}
	for _, names := range []struct {
		mark  string
		files []string
	}{{"+", files.Added}, {"~", files.Changed}, {"-", files.Removed}} {
		for _, name := range names.files {
			if len(out.Items) == maxChanges {
				out.More++
				continue
			}
			out.Items = append(out.Items, fileChange{names.mark, name})
		}
	}
	return out
}

func formatGrowth(bytes int64) string {
	if bytes < 0 {
		return "−" + formatBytes(-bytes)
	}
	return "+" + formatBytes(bytes)
}
