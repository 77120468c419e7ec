package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/stages"
)

func TestWriteDiffs(t *testing.T) {
	diff := func() *packages.SystemDiff {
		return &packages.SystemDiff{Bytes: 2 << 20, Packages: []packages.Change{
			{Name: "curl", From: []string{"8.9"}, To: []string{"8.10", "8.9"}, Bytes: 1900 << 10},
			{Name: "etc-hosts", From: []string{}, To: []string{""}, Bytes: 12},
			{Name: "firefox", From: []string{"140", "141"}, To: []string{}, Bytes: -300 << 20},
			{Name: "linux", From: []string{"6.12"}, To: []string{"6.12"}, Bytes: -9000},
		}, Units: &packages.Files{Added: []string{"a.service"}, Changed: []string{"b.timer"}, Removed: []string{"c.socket"}},
			Etc: &packages.Files{Added: []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14"}}}
	}
	var b strings.Builder
	writeDiffs(&b, []stages.Preview{{Node: "web-1", Diff: diff()}, {Node: "idle"}, {Node: "db", Diff: &packages.SystemDiff{Bytes: -3}}, {Node: "web-2", Diff: diff()}})
	want := `
web-1, web-2: closure +2.0 MiB
  ~ curl 8.9 → 8.10, 8.9, +1.9 MiB
  + etc-hosts
  - firefox 140, 141, -300.0 MiB
  ~ linux 6.12, -8.8 KiB
  units: + a.service, ~ b.timer, - c.socket
  /etc: + 1, + 2, + 3, + 4, + 5, + 6, + 7, + 8, + 9, + 10, + 11, + 12, and 2 more

db: closure -3 B
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestWriteChangedPackages(t *testing.T) {
	var many []packages.Change
	for i := range maxChangedPackages + 2 {
		many = append(many, packages.Change{Name: fmt.Sprintf("p%d", i), From: []string{"1"}, To: []string{"2"}})
	}
	var b strings.Builder
	writeChangedPackages(&b, []packages.Group{
		{Nodes: []string{"web-1", "web-2"}, Diff: &packages.SystemDiff{Bytes: 2 << 20, Packages: many[:1], Units: &packages.Files{Changed: []string{"a.service"}}}},
		{Nodes: []string{"db"}, Diff: &packages.SystemDiff{Packages: many}},
		{Nodes: []string{"all"}, Diff: &packages.SystemDiff{Packages: many[:maxChangedPackages+1]}},
	})
	got := b.String()
	if want := "\nweb-1, web-2: closure +2.0 MiB\n  ~ p0 1 → 2\n\ndb: closure +0 B\n  ~ p0 1 → 2\n"; !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant the beginning\n%s", got, want)
	}
	if n := strings.Count(got, "and 2 more packages: nixbench runs show last --html\n"); n != 1 || strings.Count(got, "~ p10 ") != 1 {
		t.Errorf("only a list of more than %d packages is shortened:\n%s", maxChangedPackages+1, got)
	}
}
