package stages

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// Preview is what apply would do with one node.
type Preview struct {
	Node   string `json:"node"`
	Unit   string `json:"unit"`
	Action string `json:"action"` // an action of package plan, such as plan.WouldSwitch
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Drv    string `json:"drv,omitempty"` // derivation of To
	// Generation is the current generation of the system profile before apply; 0: the node has none, or does not answer.
	Generation int    `json:"generation,omitempty"`
	Profile    string `json:"profile,omitempty"` // system of this generation
	// Wave is the position of the node in the order of changes, from 1; 0: the node does not change, or it is removed at the end.
	Wave    int                  `json:"wave,omitempty"`
	Drained bool                 `json:"drained,omitempty"` // whether the node is a member that is drained before the change
	Copy    *CopyPreview         `json:"copy,omitempty"`    // nil: unknown
	Reboot  *bool                `json:"reboot,omitempty"`  // whether the node needs a reboot to run another kernel; nil: unknown
	Diff    *packages.SystemDiff `json:"diff,omitempty"`    // nil: the system is the same, or unknown
	Keys    *KeysPreview         `json:"keys,omitempty"`    // nil: not requested
	Units   *UnitsPreview        `json:"units,omitempty"`   // nil: not requested
	// Version is nil if the cluster keeps its version or does not answer.
	Version *engine.Change `json:"version,omitempty"`
	// Machine is nil if nixbench does not manage the node's machine.
	Machine *MachinePreview `json:"machine,omitempty"`
	// Adjust lists the changes to the node's cluster member, such as labels.
	Adjust []string `json:"adjust,omitempty"`
	// Drain lists the data that a drain of the node would delete, and the workloads that would block the drain; nil: neither of
	// them.
	Drain *engine.DrainCheck `json:"drain,omitempty"`
	Error string             `json:"error,omitempty"`

	plan plan.Node
	err  error // why the node cannot be deployed or compared, or nil
}

// CopyPreview is the number and size of the paths that the node lacks.
type CopyPreview struct {
	Paths int   `json:"paths"`
	Bytes int64 `json:"bytes"` // size of the unpacked paths
}

// KeysPreview contains the names of the keys to upload or to adjust, and the paths of the keys to remove.
type KeysPreview struct {
	Upload []string `json:"upload"`
	Adjust []string `json:"adjust"` // keys whose owner or mode would change
	Remove []string `json:"remove"`
	// Restart are the systemd units that have read another version of a key than the one that is on the disk.
	Restart []string `json:"restart"`
}

// UnitsPreview is what `switch-to-configuration dry-activate` reports about systemd units.
type UnitsPreview struct {
	Stop    []string `json:"stop"`
	Restart []string `json:"restart"`
	Reload  []string `json:"reload"`
	Start   []string `json:"start"`
	Skip    []string `json:"skip"` // systemd units that change, but are not restarted by the switch
}

// Plan is what apply would do. [Deployer.Preview] makes it, and [Deployer.Apply] executes it if Options.Plan is set.
type Plan struct {
	Nodes    []Preview
	Unknown  error                      // why an engine does not answer, so that the plan may lack changes of the cluster; nil: all engines answer
	closures map[string]nixeval.Closure // by unit of the evaluation
	facts    []byte                     // the facts with which the systems were evaluated; nil: none

	// File is the plan file with which the caller has compared this plan, and Made is when the file was made; "": there is no
	// file. Apply deploys only the systems of the file. Only the facts of machines that Apply has created may differ in them.
	File string
	Made time.Time
}

// previewer contains the values of one call of Preview.
type previewer struct {
	deployment
	recorded *state.State
	diffs    *diffs
}

// Preview returns what Apply would do with each node, with the goal switch. It builds the systems on this computer. It writes
// nothing to the nodes, except if o.Units asks for the changes of systemd units: then it copies the closures to the nodes.
func (d *Deployer) Preview(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, recorded *state.State, o Options) (Plan, error) {
	o.Options.Options, o.Plan = node.Options{Goal: node.Switch}, nil
	r := previewer{deployment: deployment{d, o, hive, nodes}, recorded: recorded, diffs: newDiffs(d.Copier)}
	machines, done, err := r.planMachines(ctx)
	defer done()
	if err != nil {
		return Plan{}, err
	}
	var observed map[string]fleet.Outcome[activate.Node]
	var versions map[string]engine.Change
	var refused error
	var observing sync.WaitGroup
	observing.Go(func() { observed, versions, refused = r.observe(ctx, machines) })
	eval := d.Eval.WithFacts(machines.facts)
	facts := readFacts(eval)
	closures, buildErr := newSystems(r.deployment).build(ctx, eval)
	observing.Wait()
	if buildErr != nil && (!o.KeepGoing || ctx.Err() != nil) {
		return Plan{}, buildErr
	}
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Check, Total: len(nodes)})
	results := fleet.Each(ctx, nodes, o.Parallel, func(ctx context.Context, n nixeval.Node) (Preview, error) {
		c, built := closures[n.Unit]
		observation := plan.Observation{
			Node: n, Deployment: hive.Unit(n.Unit).Deployment, Observed: observed[n.Name].Value, Err: observed[n.Name].Err,
			Closure: c, Built: built, Recorded: recorded.Nodes[n.Name],
		}
		if m := machines.byNode[n.Name]; m != nil {
			observation.Machine = m.Action
		}
		p := r.describeNode(ctx, plan.DecideNode(observation, o.Options))
		p.Machine = machines.byNode[n.Name]
		if v, ok := versions[n.Name]; ok {
			p.Version = &v
		}
		return p, nil
	})
	out := make([]Preview, len(results))
	errs := []error{buildErr, refused}
	changed := 0
	for i, res := range results {
		out[i] = res.Value
		errs = append(errs, res.Err, res.Value.err)
		if slices.Contains([]string{plan.WouldKeys, plan.WouldDefault, plan.WouldSwitch, plan.WouldFirst}, res.Value.Action) {
			changed++
		}
	}
	unknown, adjustErr := r.addAdjustments(ctx, out)
	out = append(out, machines.removed...)
	errs = append(errs, adjustErr, r.addOrder(ctx, observed, out, machines.obsolete))
	err = errors.Join(errs...)
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Check, Total: len(nodes), Failed: err != nil, Text: describePreview(len(machines.removed), changed, len(nodes))})
	return Plan{Nodes: out, Unknown: unknown, closures: closures, facts: facts}, err
}

// observe inspects the nodes whose machines run. It also asks the engines which versions of their software the deployment would
// change.
func (r previewer) observe(ctx context.Context, machines machinePreviews) (observed map[string]fleet.Outcome[activate.Node], versions map[string]engine.Change, refused error) {
	running := slices.DeleteFunc(slices.Clone(r.nodes), func(n nixeval.Node) bool { return machines.isDown(n.Name) })
	observed = map[string]fleet.Outcome[activate.Node]{}
	answers := false
	for _, l := range inspect.Nodes(ctx, r.Fleet, running, r.Parallel, nil) {
		observed[l.Node.Name] = l
		answers = answers || l.Err == nil
	}
	if answers {
		versions, refused = rollout.VersionChanges(ctx, r.Engines, r.Fleet, r.hive, r.nodes)
	}
	return observed, versions, refused
}

// describePreview returns a text with the number of nodes that would be removed, and the number that would be changed.
func describePreview(removed, changed, nodes int) string {
	text := fmt.Sprintf("%d of %s would change", changed, fleet.Count(nodes, "node"))
	if removed > 0 {
		text = fleet.Count(removed, "node") + " would be removed, " + text
	}
	return text
}

// describeNode returns what apply would do with one node.
func (r previewer) describeNode(ctx context.Context, n plan.Node) Preview {
	p := Preview{
		Node: n.Node.Name, Unit: n.Node.Unit, From: n.Observed.Current, To: n.Closure.Out, Drv: n.Closure.Drv,
		Generation: n.Observed.Generation, Profile: n.Observed.Profile, Action: n.Action, plan: n, err: n.Err,
	}
	if n.Err == nil && n.Built && n.Observation.Err == nil && !isDown(n.Observation.Machine) {
		p.err = node.AddCause(ctx, r.Fleet, p.Node, r.addDetails(ctx, &p))
	}
	if p.err != nil {
		p.Error = p.err.Error()
	}
	return p
}

// addDetails adds details to the preview p of a node: the paths to copy, the packages that change, whether a reboot is needed, and
// the changes of keys and systemd units.
func (r previewer) addDetails(ctx context.Context, p *Preview) error {
	c, dep, recorded, observed := p.plan.Closure, p.plan.Deployment, p.plan.Recorded, p.plan.Observed
	h, err := r.Fleet.Host(ctx, p.plan.Node)
	if err != nil {
		return err
	}
	isLocal := durable.Exists(c.Out) // otherwise the node builds the system
	switch {
	case p.Action == plan.WouldNothing:
		p.Copy = &CopyPreview{}
	case isLocal:
		missing, bytes, err := r.Copier.Missing(ctx, p.Node, h, []string{c.Out})
		if err != nil {
			return &fleet.NodeError{Node: p.Node, Step: event.Copy, Err: err}
		}
		p.Copy = &CopyPreview{Paths: len(missing), Bytes: bytes}
		if p.Diff, err = r.diffs.compare(ctx, p.Node, h, p.From, p.To); err != nil { // apply does not need the difference
			r.Send.Send(event.Event{Kind: event.Message, Level: "warning", Node: p.Node, Time: time.Now(), Text: "the packages that change are unknown: " + err.Error()})
		}
	}
	if isLocal || p.Action == plan.WouldNothing {
		desired := observed.ProfileKernel
		if p.Action != plan.WouldNothing {
			desired = kernelOf(c.Out)
		}
		none, booted := activate.Kernel{}, observed.BootedKernel
		needed := booted != none && desired != none && desired != booted
		p.Reboot = &needed
	}
	// If the node runs the last confirmed system and the hive has no keys for the node, there are no keys to
	// remove.
	if runsConfirmed := recorded.LastConfirmed != nil && recorded.LastConfirmed.Path == observed.Current; p.plan.Keys == plan.ReplaceKeys && (len(dep.Keys) > 0 || !runsConfirmed) {
		if err := r.addKeys(ctx, p, h, dep); err != nil {
			return &fleet.NodeError{Node: p.Node, Step: event.Keys, Err: err}
		}
	}
	if r.Units && isLocal && (p.Action == plan.WouldSwitch || p.Action == plan.WouldFirst) {
		return r.addUnits(ctx, p, h, c)
	}
	return nil
}

// addKeys adds to the preview of a node which keys would change. It compares the hive's keys with those on the node.
func (r previewer) addKeys(ctx context.Context, p *Preview, h secrets.Host, dep nixeval.Deployment) error {
	set, err := r.Uploader.Load(ctx, p.Node, dep, secrets.All)
	if err != nil {
		return err
	}
	set.Restart = true
	result, err := r.Uploader.Plan(ctx, h, set)
	if err != nil {
		return err
	}
	p.Keys = &KeysPreview{Upload: nonNil(result.Uploaded), Adjust: nonNil(result.Adjusted), Remove: nonNil(result.Stale), Restart: nonNil(result.Restarted)}
	if p.Action == plan.WouldNothing && result.Changes() {
		p.Action = plan.WouldKeys
	}
	return nil
}

// addUnits adds to the preview of a node which systemd units the switch would change. For this it copies the new system to the
// node and runs a dry activation there.
func (r previewer) addUnits(ctx context.Context, p *Preview, h *remote.Host, c nixeval.Closure) error {
	r.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Copy, Node: p.Node})
	stats, err := r.Copier.Copy(ctx, p.Node, h, []string{c.Out})
	r.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Copy, Node: p.Node, Text: fmt.Sprintf("%d paths", stats.Paths), Failed: err != nil})
	if err != nil {
		return &fleet.NodeError{Node: p.Node, Step: event.Copy, Err: err}
	}
	result, err := r.Activator.Activate(ctx, p.Node, h, activate.Request{Path: c.Out, Goal: activate.DryActivate})
	if err != nil {
		return &fleet.NodeError{Node: p.Node, Step: event.Activate, Err: err}
	}
	if u := result.Dry; u != nil {
		p.Units = &UnitsPreview{Stop: nonNil(u.Stop), Restart: nonNil(u.Restart), Reload: nonNil(u.Reload), Start: nonNil(u.Start), Skip: nonNil(u.Skip)}
	}
	return nil
}

// maxKernelParams is the maximum size of the file with the kernel parameters.
const maxKernelParams = 64 << 10

// kernelOf returns the kernel, the initrd, the modules and the kernel parameters of a system in the local
// store, in the form in which a node reports them. Only a reboot changes them on a node.
func kernelOf(system string) activate.Kernel {
	resolve := func(name string) string {
		path, _ := filepath.EvalSymlinks(filepath.Join(system, name)) // a container has no kernel
		return path
	}
	params, _ := durable.Read(filepath.Join(system, "kernel-params"), maxKernelParams)
	line, _, _ := strings.Cut(string(params), "\n")
	return activate.Kernel{
		Kernel: resolve("kernel"), Initrd: resolve("initrd"), Modules: resolve("kernel-modules"), Params: strings.Trim(line, " \t"),
	}
}

// nonNil returns a copy of names that is not nil, so that it is [] in JSON and not null.
func nonNil(names []string) []string { return append([]string{}, names...) }
