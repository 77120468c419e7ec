// Package packages compares the packages of two closures.
package packages

import (
	"cmp"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Change is the change of a package between two closures. A package is identified by its name, since a store path says nothing else.
type Change struct {
	Name  string   `json:"name"`
	From  []string `json:"from"`  // versions in the first closure, which may be ""; empty: the closure has no such package
	To    []string `json:"to"`    // versions in the second closure
	Bytes int64    `json:"bytes"` // number of bytes by which the unpacked size of the package's paths grows
}

// Mark returns + for a package that is added, - for one that is removed, and ~ for one that changes.
func (c Change) Mark() string {
	switch {
	case len(c.From) == 0:
		return "+"
	case len(c.To) == 0:
		return "-"
	}
	return "~"
}

// Versions returns the versions of a package: `2.12`, or `8.9 → 8.10`. It is empty if there are none.
func (c Change) Versions() string {
	from, to := strings.Join(c.From, ", "), strings.Join(c.To, ", ")
	switch {
	case len(c.From) == 0:
		return to
	case len(c.To) == 0 || from == to:
		return from
	}
	return from + " → " + to
}

// minBytes is the smallest difference of sizes that counts. A rebuild of a package often changes its size by some bytes.
const minBytes = 8 << 10

// Diff returns the packages whose versions or sizes differ, by name, and the growth of the closure. The arguments are closures: the
// unpacked size of each store path. Store paths without a version, such as scripts and files of the configuration, count only by
// their size.
func Diff(from, to map[string]int64) *SystemDiff {
	before, after := group(from), group(to)
	names := maps.Clone(before)
	maps.Copy(names, after)
	out := &SystemDiff{Packages: []Change{}}
	for name := range names {
		a, b := before[name], after[name]
		c := Change{Name: name, From: a.sorted(), To: b.sorted(), Bytes: b.bytes - a.bytes}
		versioned := slices.ContainsFunc(slices.Concat(c.From, c.To), func(version string) bool { return version != "" })
		if versioned && !slices.Equal(c.From, c.To) || max(c.Bytes, -c.Bytes) >= minBytes {
			out.Packages = append(out.Packages, c)
		}
		out.Bytes += c.Bytes
	}
	slices.SortFunc(out.Packages, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// versions are the versions of a package in a closure, and the size of all of its paths.
type versions struct {
	found map[string]bool
	bytes int64
}

func (v versions) sorted() []string {
	return append([]string{}, slices.Sorted(maps.Keys(v.found))...) // [] instead of null in JSON
}

func group(closure map[string]int64) map[string]versions {
	out := map[string]versions{}
	for p, size := range closure {
		name, version := Parse(p)
		v := out[name]
		if v.found == nil {
			v.found = map[string]bool{}
		}
		v.found[version] = true
		v.bytes += size
		out[name] = v
	}
	return out
}

var (
	outputRE  = regexp.MustCompile(`^(.*[0-9].*)-(bin|debug|dev|devdoc|doc|info|lib|man|out|static)$`)
	versionRE = regexp.MustCompile(`-[0-9]`)
)

// Parse returns the name and the version of a store path's package: curl and 8.10.1 of /nix/store/HASH-curl-8.10.1-bin. The version begins after
// the first hyphen that a digit follows, and is "" if there is none. The name of an output is a part of neither.
func Parse(storePath string) (name, version string) {
	_, full, found := strings.Cut(path.Base(storePath), "-")
	if !found {
		full = path.Base(storePath)
	}
	if m := outputRE.FindStringSubmatch(full); m != nil {
		full = m[1]
	}
	if at := versionRE.FindStringIndex(full); at != nil {
		return full[:at[0]], full[at[0]+1:]
	}
	return full, ""
}

// SystemDiff is the difference between the closures of two systems.
type SystemDiff struct {
	Packages []Change `json:"packages"`
	Bytes    int64    `json:"bytes"` // by which the unpacked closure grows
	// Units and Etc are the units, and the other files of /etc, that differ; nil: the first system is not in the local store.
	Units *Files `json:"units,omitempty"`
	Etc   *Files `json:"etc,omitempty"`
}

type Group struct {
	Nodes []string    `json:"nodes"`
	Diff  *SystemDiff `json:"diff"`
}

// AddNode adds a node to the group with the same difference, or to a new group. diff is nil if the node's system does not change, or
// the difference is unknown; then the node is in no group.
func AddNode(groups []Group, node string, diff *SystemDiff) []Group {
	if diff == nil {
		return groups
	}
	i := slices.IndexFunc(groups, func(g Group) bool { return reflect.DeepEqual(g.Diff, diff) })
	if i < 0 {
		i, groups = len(groups), append(groups, Group{Diff: diff})
	}
	groups[i].Nodes = append(groups[i].Nodes, node)
	return groups
}
