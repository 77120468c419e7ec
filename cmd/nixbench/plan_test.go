package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/plan"
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
	writePreviews(&b, []stages.Preview{{Node: "web-1", Diff: diff()}, {Node: "idle"}, {Node: "db", Diff: &packages.SystemDiff{Bytes: -3}}, {Node: "web-2", Diff: diff()}})
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
	if !strings.Contains(b.String(), want) {
		t.Errorf("got\n%s\nwant in it\n%s", b.String(), want)
	}
}

func TestWriteChangedPackages(t *testing.T) {
	var many []packages.Change
	for i := range maxChangedPackages + 2 {
		many = append(many, packages.Change{Name: fmt.Sprintf("p%d", i), From: []string{"1"}, To: []string{"2"}})
	}
	var b strings.Builder
	writeDiffs(&b, []packages.Group{
		{Nodes: []string{"web-1", "web-2"}, Diff: &packages.SystemDiff{Bytes: 2 << 20, Packages: many[:1], Units: &packages.Files{Changed: []string{"a.service"}}}},
		{Nodes: []string{"db"}, Diff: &packages.SystemDiff{Packages: many}},
		{Nodes: []string{"all"}, Diff: &packages.SystemDiff{Packages: many[:maxChangedPackages+1]}},
	}, true)
	got := b.String()
	if want := "\nweb-1, web-2: closure +2.0 MiB\n  ~ p0 1 → 2\n\ndb: closure +0 B\n  ~ p0 1 → 2\n"; !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant the beginning\n%s", got, want)
	}
	if n := strings.Count(got, "and 2 more packages: nixbench runs last lists them\n"); n != 1 || strings.Count(got, "~ p10 ") != 1 {
		t.Errorf("only a list of more than %d packages is shortened:\n%s", maxChangedPackages+1, got)
	}
}

func TestWriteOrder(t *testing.T) {
	write := func(previews ...stages.Preview) string {
		var b strings.Builder
		writeOrder(&b, previews)
		return b.String()
	}
	gone := stages.Preview{Node: "old", Action: plan.WouldRemove}
	for name, test := range map[string]struct{ got, want string }{
		"all at once":      {write(stages.Preview{Node: "a", Wave: 1}, stages.Preview{Node: "b", Wave: 1}), ""},
		"only unchanged":   {write(stages.Preview{Node: "a"}), ""},
		"only a removal":   {write(gone), ""},
		"one, drained":     {write(stages.Preview{Node: "a", Wave: 1, Drained: true}), "\norder:\n  1. a (drained)\n"},
		"one and removal":  {write(stages.Preview{Node: "a", Wave: 1}, gone), "\norder:\n  1. a\n  at the end: old removed\n"},
		"several per wave": {write(stages.Preview{Node: "c", Wave: 2}, stages.Preview{Node: "a", Wave: 1}, stages.Preview{Node: "b", Wave: 2, Drained: true}), "\norder:\n  1. a\n  2. c, b (drained)\n"},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestDescribeChanges(t *testing.T) {
	withMachine := func(action string, a changes.Action) stages.Preview {
		return stages.Preview{Action: action, Machine: &stages.MachinePreview{Action: a}}
	}
	got := describeChanges([]stages.Preview{
		withMachine(plan.WouldNothing, changes.Keep), withMachine(plan.WouldFirst, changes.Create), withMachine(plan.WouldFirst, changes.Recreate),
		{Action: plan.WouldSwitch}, withMachine(plan.WouldRemove, changes.Remove), withMachine(plan.WouldSwitch, changes.Restart),
	})
	want := "nodes: 1 removed, 1 with a recreated machine, 1 with a restarted machine, 1 with a new machine, 2 first deployment, 2 switch, 1 unchanged"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
