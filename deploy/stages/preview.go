package stages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/rollout"
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
	// HealthChecks is the number of health checks that must pass after a change of the system.
	HealthChecks int `json:"healthChecks,omitempty"`
	// Version is nil if the cluster keeps its version or does not answer.
	Version *engine.Change `json:"version,omitempty"`
	// Machine is nil if nixbench does not manage the node's machine.
	Machine *MachinePreview `json:"machine,omitempty"`
	// Adjust lists the changes to the node's cluster member, such as labels.
	Adjust []string `json:"adjust,omitempty"`
	// Drain lists the data that a drain of the node would delete, and the workloads that would block the drain; nil: neither of them.
	Drain *engine.DrainCheck `json:"drain,omitempty"`
	Error string             `json:"error,omitempty"`

	plan plan.Node
	err  error // why the node cannot be deployed or compared, or nil
}

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

// Plan is what apply would do. [Deployer.Preview] makes it, and [Deployer.Apply] executes it if Options.Plan is set.
type Plan struct {
	Nodes    []Preview
	Unknown  error                      // why an engine does not answer, so that the plan may lack changes of the cluster; nil: all engines answer
	Closures map[string]nixeval.Closure // by unit of the evaluation
	facts    []byte                     // the facts with which the systems were evaluated; nil: none
}

// Preview returns what Apply would do with each node, with the goal switch. It builds the systems on this computer, and is the same
// walk as that of Apply, but changes no machine and no state, and writes nothing to the nodes.
func (d *Deployer) Preview(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, o Options) (Plan, error) {
	o.Options.Options, o.Plan = node.Options{Goal: node.Switch}, nil
	r := d.newRun(hive, nodes, o)
	r.preview = true
	facts, done, err := r.previewMachines(ctx)
	defer done()
	if err != nil {
		return Plan{}, err
	}
	prepared := r.prepareNodes(ctx)
	defer prepared.stop()
	eval := d.Eval.WithFacts(facts)
	out := Plan{facts: readFacts(eval)}
	buildErr := r.systems.build(ctx, eval)
	if buildErr != nil && (!o.KeepGoing || ctx.Err() != nil) {
		return Plan{}, buildErr
	}
	out.Closures = r.systems.closures()
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Check, Total: len(nodes)})
	versions, refused := r.askVersions(ctx, prepared)
	cluster, clusterErr := r.observeCluster(ctx, prepared)
	out.Unknown = cluster.Unknown
	p := r.decidePlan(ctx, nodes, r.obsolete, cluster, prepared)
	known := &diffs{copier: d.Copier}
	decided := map[string]plan.Node{}
	for _, n := range p.Nodes {
		decided[n.Node.Name] = n
	}
	for _, n := range fleet.Each(ctx, nodes, o.Parallel, func(ctx context.Context, n nixeval.Node) (Preview, error) {
		return r.describe(ctx, decided[n.Name], known), nil
	}) {
		if n.Err != nil { // the run was cancelled, so the details of the node are unknown
			one := decided[n.Node.Name]
			n.Value = Preview{Node: n.Node.Name, Unit: n.Node.Unit, Action: one.Action, plan: one}
		}
		out.Nodes = append(out.Nodes, n.Value)
		err = errors.Join(err, n.Err, n.Value.err)
	}
	adjust := map[string][]string{}
	if cluster.Unknown == nil && cluster.Running() {
		adjust = cluster.PreviewAdjustments(ctx, slices.Collect(maps.Keys(decided)))
	}
	for i := range out.Nodes {
		n := &out.Nodes[i]
		n.Machine, n.Adjust = r.actions[n.Node], adjust[n.Node]
		if v, ok := versions[n.Node]; ok {
			n.Version = &v
		}
	}
	out.Nodes = append(out.Nodes, r.removed...)
	err = errors.Join(buildErr, refused, err, clusterErr, addOrder(ctx, out.Nodes, p, cluster))
	changed := slices.DeleteFunc(slices.Clone(out.Nodes), func(n Preview) bool { return n.Wave == 0 })
	text := fmt.Sprintf("%d of %s would change", len(changed), event.Count(len(nodes), "node"))
	if len(r.removed) > 0 {
		text = event.Count(len(r.removed), "node") + " would be removed, " + text
	}
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Check, Total: len(nodes), Failed: err != nil, Text: text})
	return out, err
}

// addOrder completes the preview of each node that would change: its wave, and what a drain would delete.
func addOrder(ctx context.Context, previews []Preview, p plan.Plan, cluster rollout.Cluster) error {
	byName := map[string]*Preview{}
	for i := range previews {
		byName[previews[i].Node] = &previews[i]
	}
	number := 0
	for _, wave := range p.Waves {
		wave = slices.DeleteFunc(slices.Clone(wave), func(n plan.Node) bool { return !byName[n.Node.Name].isInWave() })
		if len(wave) > 0 {
			number++
		}
		for _, n := range wave {
			m, isMember := cluster.Members[n.Node.Name]
			shown := byName[n.Node.Name]
			shown.Wave, shown.Drained = number, n.Drain && isMember && !m.Unreachable
		}
	}
	checks, err := cluster.CheckDrains(ctx, p.Drains)
	for name, check := range checks {
		byName[name].Drain = &check
	}
	return err
}

func (p Preview) isInWave() bool {
	return slices.Contains([]string{plan.WouldKeys, plan.WouldDefault, plan.WouldSwitch, plan.WouldFirst, plan.NotRunning}, p.Action) || p.plan.Restarts()
}

// Changes reports whether Apply would change a node, a machine or a member of the cluster.
func (p Plan) Changes() bool {
	return slices.ContainsFunc(p.Nodes, func(n Preview) bool {
		machineChanges := n.Machine != nil && n.Machine.Action != changes.Keep
		return n.Action != plan.WouldNothing && n.Action != plan.Away || machineChanges || n.Version != nil || len(n.Adjust) > 0
	})
}

// describe finds out the details of what apply would do with a node.
func (r *run) describe(ctx context.Context, n plan.Node, d *diffs) Preview {
	p := Preview{
		Node: n.Node.Name, Unit: n.Node.Unit, From: n.Observed.Current, To: n.Closure.Out, Drv: n.Closure.Drv,
		Generation: n.Observed.Generation, Profile: n.Observed.Profile, Action: n.Action, plan: n, err: n.Err,
	}
	if n.Changes {
		p.HealthChecks = len(n.Deployment.HealthChecks)
	}
	if n.Err == nil && n.Built && n.Observation.Err == nil && !isDown(n.Machine) {
		p.err = r.addDetails(ctx, &p, d)
	}
	if p.err != nil {
		p.Error = p.err.Error()
	}
	return p
}

// addDetails adds what is to be copied, the packages that change, whether a reboot is needed, and the changes of keys and units.
func (r *run) addDetails(ctx context.Context, p *Preview, d *diffs) error {
	system, recorded, observed := p.plan.Closure.Out, p.plan.Recorded, p.plan.Observed
	h, err := r.Fleet.Host(ctx, p.plan.Node)
	if err != nil {
		return err
	}
	isLocal := durable.Exists(system) // a system that is not in the local store is built by the node
	switch {
	case p.Action == plan.WouldNothing:
		p.Copy = &CopyPreview{}
	case isLocal:
		missing, err := r.Copier.Missing(ctx, p.Node, h, []string{system})
		if err != nil {
			return &fleet.NodeError{Node: p.Node, Step: event.Copy, Err: err}
		}
		p.Copy = &CopyPreview{Paths: missing.Paths, Bytes: missing.Bytes}
		if p.Diff, err = d.compare(ctx, p.Node, h, p.From, p.To); err != nil { // apply does not need the difference
			r.Send.WarnOn(p.Node, "the packages that change are unknown: %v", err)
		}
	}
	if isLocal || p.Action == plan.WouldNothing {
		desired := observed.ProfileKernel
		if p.Action != plan.WouldNothing {
			desired = kernelOf(system)
		}
		none, booted := activate.Kernel{}, observed.BootedKernel
		needed := booted != none && desired != none && desired != booted
		p.Reboot = &needed
	}
	// If the node runs the last confirmed system and the hive has no keys for the node, there are no keys to remove.
	runsConfirmed := recorded.LastConfirmed != nil && recorded.LastConfirmed.Path == observed.Current
	if keys := p.plan.KeySet; keys != nil && (len(keys.Keys) > 0 || !runsConfirmed) {
		set := *keys
		set.Restart = true
		result, err := r.Uploader.Plan(ctx, h, set)
		if err != nil {
			return &fleet.NodeError{Node: p.Node, Step: event.Keys, Err: err}
		}
		p.Keys = &KeysPreview{Upload: nonNil(result.Uploaded), Adjust: nonNil(result.Adjusted), Remove: nonNil(result.Stale), Restart: nonNil(result.Restarted)}
		if p.Action == plan.WouldNothing && result.Changes() {
			p.Action = plan.WouldKeys
		}
	}
	return nil
}

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
