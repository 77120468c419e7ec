package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/stages"
)

func TestWriteOrder(t *testing.T) {
	write := func(previews ...stages.Preview) string {
		var b strings.Builder
		writeOrder(&b, previews)
		return b.String()
	}
	waves := func(n int) (out []stages.Preview) {
		for i := range n {
			out = append(out, stages.Preview{Node: "w", Wave: i + 1})
		}
		return out
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
	if got := write(waves(maxOrderLines + 1)...); strings.Contains(got, "more") || !strings.Contains(got, "  21. w\n") {
		t.Errorf("21 waves:\n%s", got)
	}
	if got := write(waves(maxOrderLines + 2)...); !strings.HasSuffix(got, "  20. w\n  and 2 more waves\n") {
		t.Errorf("22 waves:\n%s", got)
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
