package stages

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/plan"
)

// OutdatedPlanError means that a saved plan is not applied, because something (such as the hive or a node) has changed since the
// plan was made.
type OutdatedPlanError struct {
	File    string
	Made    time.Time
	Changes []string // what has changed

	Executing bool // whether the change happened while apply executed the plan, so that machines may have changed
}

func (e *OutdatedPlanError) Error() string {
	format := "plan %s of %s is outdated, and nothing was changed:\n%s"
	if e.Executing {
		format = "plan %s of %s became outdated while apply executed it, and no system was deployed:\n%s"
	}
	return fmt.Sprintf(format, e.File, e.Made.UTC().Format("2006-01-02 15:04:05 UTC"), strings.Join(e.Changes, "\n"))
}

// Kind implements [failure.Classified].
func (*OutdatedPlanError) Kind() failure.Kind { return failure.Outdated }

// Hint names the command that makes a new plan.
func (e *OutdatedPlanError) Hint() string { return "make a new plan: nixbench plan --out " + e.File }

// CompareWith returns what makes a saved plan outdated: the differences between the saved plan and a plan that was made now. It
// ignores a difference that a part of the saved plan has made when it was executed, so that an interrupted apply can be repeated.
func (s SavedPlan) CompareWith(now SavedPlan) []string {
	var out []string
	if s.Cluster != now.Cluster {
		return []string{fmt.Sprintf("the plan is for the cluster %s, and the hive is that of %s", s.Cluster, now.Cluster)}
	}
	planned, current := map[string]Preview{}, map[string]Preview{}
	for _, p := range s.Nodes {
		planned[p.Node] = p
	}
	hiveChanged := false
	for _, p := range now.Nodes {
		current[p.Node] = p
		old, isPlanned := planned[p.Node]
		switch {
		case !isPlanned && p.Action == plan.WouldRemove:
			out = append(out, p.Node+": its machine would be removed now")
		case !isPlanned:
			hiveChanged = true
			out = append(out, p.Node+": the plan does not contain the node")
		default:
			changes := old.compareWith(p)
			hiveChanged = hiveChanged || old.To != p.To || s.Deployments[p.Node] != now.Deployments[p.Node]
			if s.Deployments[p.Node] != now.Deployments[p.Node] {
				changes = append(changes, "its options in the hive have changed: deployment, its role, or cluster")
			}
			for _, c := range changes {
				out = append(out, p.Node+": "+c)
			}
		}
	}
	for _, p := range s.Nodes {
		if _, found := current[p.Node]; !found && p.Action != plan.WouldRemove {
			hiveChanged = true
			out = append(out, p.Node+": the hive, or the selection of the plan, does not contain the node any more")
		}
	}
	if hiveChanged && s.Source != now.Source {
		out = append([]string{"the source of the hive has changed: " + now.Hive}, out...)
	}
	return out
}

// compareWith returns the differences between p, the saved preview of a node, and now, the node's present preview.
func (p Preview) compareWith(now Preview) []string {
	var out []string
	if was, is := p.machineAction(), now.machineAction(); !continuesMachine(was, is) {
		out = append(out, fmt.Sprintf("its machine: planned %s, now %s", was, is))
	}
	if p.To != now.To || p.Drv != now.Drv {
		out = append(out, describeOtherSystem(now.To, p.To))
	}
	applied := now.From != "" && now.From == p.To
	switch {
	case applied:
	case p.From == "" && p.machineAction() != changes.Keep: // the machine did not run, so its system was unknown
	case now.From != p.From:
		out = append(out, fmt.Sprintf("it runs another system now: %s, when the plan was made %s", orNone(now.From), orNone(p.From)))
	case now.Generation != p.Generation && now.Profile != p.To: // an interrupted apply may have made the new generation the system profile, without activating it
		out = append(out, fmt.Sprintf("its profile has generation %d now, when the plan was made %d", now.Generation, p.Generation))
	}
	if now.Keys != nil {
		var keys []string
		saved := KeysPreview{}
		if p.Keys != nil {
			saved = *p.Keys
		}
		for _, names := range [][2][]string{{now.Keys.Upload, saved.Upload}, {now.Keys.Adjust, slices.Concat(saved.Upload, saved.Adjust)}, {now.Keys.Remove, saved.Remove}} {
			keys = append(keys, without(names[0], names[1])...)
		}
		if len(keys) > 0 && p.From != "" {
			out = append(out, "more keys differ now: "+strings.Join(keys, ", "))
		}
	}
	if now.Version != nil && (p.Version == nil || *p.Version != *now.Version) {
		out = append(out, fmt.Sprintf("its cluster would go from version %s to %s now", now.Version.From, now.Version.To))
	}
	if more := without(now.Adjust, p.Adjust); len(more) > 0 && p.From != "" {
		out = append(out, "its cluster member would change more: "+strings.Join(more, ", "))
	}
	return out
}

func describeOtherSystem(now, planned string) string {
	return fmt.Sprintf("the hive has another system now: %s, planned %s", orNone(now), orNone(planned))
}

func (p Preview) machineAction() changes.Action {
	if p.Machine == nil {
		return changes.Keep
	}
	return p.Machine.Action
}

// continuesMachine reports whether an interrupted apply of the saved plan can be the reason why the action on a machine has
// changed. was is the action in the saved plan, and is is the action that the machine needs now.
func continuesMachine(was, is changes.Action) bool {
	switch was {
	case is:
		return true
	case changes.Keep, changes.Remove:
		return false
	case changes.Create, changes.Recreate:
		return slices.Contains([]changes.Action{changes.Keep, changes.Finish, changes.Start, changes.Resume, changes.Create}, is)
	}
	return slices.Contains([]changes.Action{changes.Keep, changes.Start, changes.Resume}, is)
}

// without returns the names that are not in the list others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

func orNone(path string) string {
	if path == "" {
		return "none"
	}
	return path
}
