package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

type ApplyOptions struct {
	stages.Options
	NoSubstitute bool // copy all store paths from this computer, also those that nodes could fetch

	// Ask asks the user to confirm changes that stop running machines. plan makes the plan, which Apply then executes. Nil: Apply does not ask.
	Ask func(changes []changes.Change, plan func() (*stages.Plan, error)) error
}

type Applied struct {
	Results []state.NodeResult // nil: Apply did not begin
	Changes []packages.Group   // what changes in the systems of nodes, unless the user has seen the plan
}

func (s *Session) Apply(ctx context.Context, o ApplyOptions) (Applied, error) {
	var out Applied
	err := s.withRecord(ctx, func(d *stages.Deployer) (err error) {
		defer s.noteAway()
		before, file := d.Store.State(), s.request.Plan
		if err := checkNoCluster(file, before); err != nil {
			return err
		}
		if hasNothingToDo(s, before, o.Options) {
			out.Results = d.Record.Results()
			return nil
		}
		d.Copier.Substitute = !o.NoSubstitute
		o.Plan, o.Away = &stages.Plan{}, s.awayNames()
		if file != nil && !file.OnlyBuilds() {
			if o.Plan, err = verifyPlan(ctx, s, o); err != nil {
				return err
			}
		}
		makePlan := func() (*stages.Plan, error) {
			if o.Plan.Nodes != nil {
				return o.Plan, nil
			}
			made, err := preview(ctx, s, o.Options)
			if made.Nodes != nil {
				*o.Plan = made
			}
			return o.Plan, err
		}
		if s.Machines.Ask = nil; o.Ask != nil {
			s.Machines.Ask = func(changes []changes.Change) error { return o.Ask(changes, makePlan) }
		}
		if err = d.Apply(ctx, s.Hive, s.Nodes, o.Options); err == nil && o.Goal == node.Switch && !o.Partial {
			for _, usage := range describeNewClusters(s.Hive, before) {
				d.Send.Note("%s", usage)
			}
		}
		if out.Results = d.Record.Results(); err == nil && o.Plan.Nodes == nil {
			if recorded, err := runs.Open(s.Dir, d.RunID); err == nil {
				out.Changes, _ = recorded.Changes() // a run does not fail because of its record
			}
		}
		return err
	})
	return out, err
}

// ApplyLocal deploys the selected node, which is this computer. escalation is the command that runs other commands as root, such
// as sudo; it is empty if nixbench runs as root.
func (s *Session) ApplyLocal(ctx context.Context, escalation []string, o stages.Options) error {
	local, err := fleet.NewLocal(s.Hive, s.Nodes[0], escalation, remote.Options{Prompt: s.request.Prompt, Send: s.Send})
	if err != nil {
		return err
	}
	defer local.Close()
	return s.withRecord(ctx, func(d *stages.Deployer) error {
		d.Fleet, d.Machines, d.Engines, d.Uploader.Generated = local, nil, nil, nil
		return d.Apply(ctx, s.Hive, s.Nodes, o)
	})
}

// Build builds the systems of the selected nodes, and makes garbage collector roots for them. results is a folder: if it is set,
// Build also creates a link result-NODE in it for each node.
//
// If file is set, Build also writes a plan to this file, which another computer can apply.
func (s *Session) Build(ctx context.Context, keepGoing bool, results, file string) ([]stages.Closure, error) {
	if file != "" {
		if err := stages.CheckPortable(s.Hive, s.Nodes, s.Eval.NixOptions); err != nil {
			return nil, failure.WithKind(failure.Usage, fmt.Errorf("--out %s: %w", file, err))
		}
	}
	built, buildErr := stages.Build(ctx, s.Eval, s.Hive, s.Nodes, keepGoing)
	closures, links := map[string]nixeval.Closure{}, map[string]string{}
	for _, c := range built {
		if c.Built {
			closures[c.Unit] = nixeval.Closure{Drv: c.Drv, Out: c.Path}
			links[filepath.Join(results, "result-"+c.Node)] = c.Path
		}
	}
	err := s.Machines.Keep(closures)
	if err == nil && results != "" {
		err = s.Eval.Keep(ctx, links)
	}
	if err = errors.Join(buildErr, err); err == nil && file != "" {
		saved := newSavedPlan(ctx, s, stages.Plan{})
		if err = saved.AddSystems(s.Hive, s.Nodes, closures, s.Eval.NixOptions); err == nil {
			err = s.writePlan(saved, file)
		}
		if err == nil && slices.ContainsFunc(s.Nodes, func(n nixeval.Node) bool { return len(s.Hive.Unit(n.Unit).Deployment.SSHOptions) > 0 }) {
			event.Sink(s.Send).Note("deployment.sshOptions are not in the plan; the SSH configuration of the computer that applies it counts")
		}
	}
	return built, err
}

// Plan returns what Apply would do. If file is set, Plan also writes the plan to it, with the arguments with which it was made.
func (s *Session) Plan(ctx context.Context, o stages.Options, file string, arguments stages.PlanArguments) (stages.Plan, error) {
	defer s.noteAway()
	made, err := preview(ctx, s, o)
	planned := made
	if err == nil || made.Nodes != nil {
		for _, r := range s.Away {
			made.Nodes = append(made.Nodes, stages.Preview{Node: r.Node, Unit: r.Unit, Action: plan.Away, Error: r.Error})
		}
	}
	if err != nil || file == "" {
		return made, err
	}
	saved := newSavedPlan(ctx, s, planned)
	saved.Arguments = arguments
	for _, n := range s.Nodes {
		if s.Hive.Unit(n.Unit).Deployment.BuildOnTarget {
			saved.OnlyHere = n.Name + ": its system is built on the node; nixbench build --out builds it"
		}
	}
	if saved.OnlyHere == "" {
		_ = saved.AddSystems(s.Hive, s.Nodes, made.Closures, s.Eval.NixOptions) // the error is in the file
	}
	return made, s.writePlan(saved, file)
}

func (s *Session) writePlan(saved stages.SavedPlan, file string) error {
	saved.Arguments.On = append([]string{}, s.request.On...)
	key, err := keys.MakePlanKey(s.Dir)
	if err == nil {
		err = saved.Write(file, key)
	}
	if err == nil {
		event.Sink(s.Send).Note("the plan is in %s; nixbench apply %s executes it", file, file)
	}
	return err
}

// checkNoCluster returns an error if a plan that needs no hive would be applied with the state of a cluster. Such a plan contains only some
// nodes of the hive, so the others would count as removed.
func checkNoCluster(p *PlanFile, recorded *state.State) error {
	isCluster := len(recorded.Machines) > 0
	for _, n := range recorded.Nodes {
		isCluster = isCluster || n.Engine != ""
	}
	if isCluster && p.NeedsNoHive() {
		return failure.NewUsage("plan %s: the state folder here is that of a cluster, and the plan contains only some of its nodes; make it with nixbench plan --out and apply it where the hive is", p.File)
	}
	return nil
}

// hasNothingToDo reports whether no node is selected, because all are away, and no machine of a former node can be removed.
func hasNothingToDo(s *Session, recorded *state.State, o stages.Options) bool {
	former := maps.Clone(recorded.Machines)
	for _, n := range s.Hive.Nodes {
		delete(former, n.Name)
	}
	return len(s.Nodes) == 0 && (o.Partial || len(former) == 0)
}

// preview makes a plan. It creates no secrets and no garbage collector roots. If Nix deletes a closure before the apply, the apply
// builds it again.
func preview(ctx context.Context, s *Session, o stages.Options) (stages.Plan, error) {
	recorded, err := s.State()
	if err != nil || hasNothingToDo(s, recorded, o) {
		return stages.Plan{}, err
	}
	o.Away = s.awayNames()
	d := s.run.Load()
	if d == nil {
		d = newDeployer(s, state.ReadOnly(recorded))
	}
	copied, manager := *d, *s.Machines
	manager.Vault = vault.Open(s.Dir.Vault())
	manager.Vault.ReadOnly = true
	copied.Machines, copied.Uploader = &manager, &secrets.Uploader{Send: s.Send, Generated: manager.Vault.Part}
	copied.Keep = func(map[string]nixeval.Closure) error { return nil }
	return copied.Preview(ctx, s.Hive, s.Nodes, o)
}

// verifyPlan makes a new plan with the arguments of a plan file. If it differs from that in the file, the error has the kind Outdated.
func verifyPlan(ctx context.Context, s *Session, o ApplyOptions) (*stages.Plan, error) {
	saved := s.request.Plan
	saved.Nodes = slices.DeleteFunc(saved.Nodes, func(p stages.Preview) bool { return slices.Contains(o.Away, p.Node) })
	made, err := preview(ctx, s, o.Options)
	if err != nil {
		return nil, err
	}
	now := newSavedPlan(ctx, s, made)
	if saved.Elsewhere { // the options are those of the plan
		now.Deployments = saved.Deployments
	}
	if changes := saved.CompareWith(now); len(changes) > 0 {
		return nil, failure.WithHint(failure.WithKind(failure.Outdated, fmt.Errorf("plan %s of %s is outdated, and nothing was changed:\n%s",
			saved.File, saved.Made.UTC().Format("2006-01-02 15:04:05 UTC"), strings.Join(changes, "\n"))), "make a new plan: nixbench plan --out "+saved.File)
	}
	if !made.Changes() && (stages.Plan{Nodes: saved.Nodes}).Changes() {
		event.Sink(s.Send).Note("the plan %s was applied already; there is nothing to change", saved.File)
	}
	return &made, nil
}

// newSavedPlan converts a plan to the form that is written to a plan file. Plans are also compared in this form.
func newSavedPlan(ctx context.Context, s *Session, made stages.Plan) stages.SavedPlan {
	source := s.Eval.Source
	out := stages.SavedPlan{
		Nixbench: s.request.Version, Made: time.Now().UTC(), Cluster: s.Hive.ClusterName(), Hive: source.String(),
		Revision: s.revision(ctx), Scheduler: s.Hive.Scheduler(),
		Deployments: map[string]string{}, Nodes: made.Nodes,
	}
	for _, n := range s.Nodes {
		out.Deployments[n.Name] = stages.HashDeployment(s.Hive, n)
	}
	return out
}
