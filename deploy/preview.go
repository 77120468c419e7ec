package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// What apply would do with a node.
const (
	WouldNothing = "unchanged"
	WouldKeys    = "keys only"    // the system is as wanted
	WouldDefault = "boot default" // it runs already, but something else boots
	WouldSwitch  = "switch"
	WouldFirst   = "first deployment"
	WouldRefuse  = "refused" // see Preview.Error
	WouldNotFind = "unreachable"
	NotBuilt     = "not built"
	WouldRemove  = "removed"     // its machine is
	NotKnown     = "not running" // its machine has to be started first; only then it tells
)

// Preview is what apply would do with one node.
type Preview struct {
	Node   string        `json:"node"`
	Unit   string        `json:"unit"`
	Action string        `json:"action"` // one of the words above
	From   string        `json:"from,omitempty"`
	To     string        `json:"to,omitempty"`
	Copy   *CopyPreview  `json:"copy,omitempty"`   // nil: not known
	Reboot *bool         `json:"reboot,omitempty"` // for another kernel; nil: not known
	Keys   *KeysPreview  `json:"keys,omitempty"`   // nil: not asked
	Units  *UnitsPreview `json:"units,omitempty"`  // nil: not asked
	// Version is nil where what the nodes run together keeps its version, or does not answer.
	Version *engine.Change `json:"version,omitempty"`
	// Machine is nil for nodes that nixbench does not boot.
	Machine *MachinePreview `json:"machine,omitempty"`
	// Adjust is what would change of the node in what it runs together with others.
	Adjust []string `json:"adjust,omitempty"`
	// Drain is what draining the node deletes for good, or would be refused for; nil: nothing.
	Drain *engine.DrainCheck `json:"drain,omitempty"`
	Error string             `json:"error,omitempty"`

	err error
}

// CopyPreview is what the node lacks.
type CopyPreview struct {
	Paths int   `json:"paths"`
	Bytes int64 `json:"bytes"` // unpacked
}

// KeysPreview has names of keys, and paths of those to be removed.
type KeysPreview struct {
	Upload []string `json:"upload"`
	Adjust []string `json:"adjust"` // owner or mode
	Remove []string `json:"remove"`
}

// UnitsPreview is what switch-to-configuration says that it would do.
type UnitsPreview struct {
	Stop    []string `json:"stop"`
	Restart []string `json:"restart"`
	Reload  []string `json:"reload"`
	Start   []string `json:"start"`
	Skip    []string `json:"skip"` // changed, but left as they are
}

// PreviewOptions say what to look at.
type PreviewOptions struct {
	Parallel  int
	Units     bool // copies the closures, since only the new system can tell
	Keys      bool
	KeepGoing bool
	Some      bool // only some of the hive's nodes are meant, so no machine would be removed
	Recreate  bool

	WithoutDrain bool
	Drain        engine.DrainOptions
}

// Preview finds out what Apply would do. Systems are built here; on the nodes nothing
// is written, unless Units is asked for.
func (d *Deployer) Preview(ctx context.Context, hive *nixeval.Hive, nodes []nixeval.Node, known *state.State, o PreviewOptions) ([]Preview, error) {
	r := &run{Deployer: d, hive: hive, Options: Options{Goal: Switch, Parallel: o.Parallel, KeepGoing: o.KeepGoing}}
	machines, done, err := d.previewMachines(ctx, known, nodes, o)
	defer done()
	if err != nil {
		return nil, err
	}
	there := slices.DeleteFunc(slices.Clone(nodes), func(n nixeval.Node) bool { return machines.away(n.Name) })
	looks := make(chan []Outcome[activate.Node], 1)
	var versions map[string]engine.Change
	var refused error
	go func() {
		found := Look(ctx, d.Fleet, there, o.Parallel, nil)
		if slices.ContainsFunc(found, func(o Outcome[activate.Node]) bool { return o.Err == nil }) {
			versions, refused = r.versions(ctx, hive, nodes)
		}
		looks <- found
	}()
	closures, buildErr := r.closures(ctx, nodes)
	looked := <-looks
	if buildErr != nil && (!o.KeepGoing || ctx.Err() != nil) {
		return nil, buildErr
	}
	d.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Check, Total: len(nodes)})
	byName := map[string]Outcome[activate.Node]{}
	for _, l := range looked {
		byName[l.Node.Name] = l
	}
	results := Each(ctx, nodes, o.Parallel, func(ctx context.Context, n nixeval.Node) (Preview, error) {
		c, built := closures[n.Unit]
		if m := machines.of[n.Name]; machines.away(n.Name) {
			return unbooted(n, c, built, m), nil
		}
		p := d.preview(ctx, hive, byName[n.Name], c, built, known.Nodes[n.Name], o)
		p.Machine = machines.of[n.Name]
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
		if slices.Contains([]string{WouldKeys, WouldDefault, WouldSwitch, WouldFirst}, res.Value.Action) {
			changed++
		}
	}
	errs = append(errs, d.previewAdjust(ctx, hive, out))
	out = append(out, machines.removed...)
	errs = append(errs, d.previewDrains(ctx, hive, out, o))
	changed += len(machines.removed)
	err = errors.Join(errs...)
	d.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Check, Total: len(nodes), Failed: err != nil, Text: fmt.Sprintf("%d of %s would change", changed, Count(len(nodes), "node"))})
	return out, err
}

// unbooted is for a node whose machine is not there, or does not run.
func unbooted(n nixeval.Node, c nixeval.Closure, built bool, m *MachinePreview) Preview {
	p := Preview{Node: n.Name, Unit: n.Unit, To: c.Out, Action: WouldFirst, Machine: m}
	switch {
	case !built:
		p.Action = NotBuilt
	case m.Action == provision.Start, m.Action == provision.Resume:
		p.Action = NotKnown
	case m.Action == provision.Reconnect:
		p.Action = WouldNotFind
	}
	return p
}

func (d *Deployer) preview(ctx context.Context, hive *nixeval.Hive, look Outcome[activate.Node], c nixeval.Closure, built bool, known state.Node, o PreviewOptions) Preview {
	n, dep := look.Node, hive.Unit(look.Node.Unit).Deployment
	p := Preview{Node: n.Name, Unit: n.Unit, From: look.Value.Current, To: c.Out}
	p.Action, p.err = action(look, c, built, known, dep)
	if p.err == nil && built {
		p.err = d.fill(ctx, &p, look, c, known, dep, o)
	}
	if p.err != nil {
		p.Error = p.err.Error()
	}
	return p
}

// action is the word for it, and why it cannot be done.
func action(look Outcome[activate.Node], c nixeval.Closure, built bool, known state.Node, dep nixeval.Deployment) (string, error) {
	n := look.Value
	foreign := func(path string) bool {
		return path != "" && path != c.Out && !slices.Contains(known.Paths, path) && !slices.Contains(n.Deployed, path)
	}
	switch {
	case look.Err != nil:
		return WouldNotFind, look.Err
	case !n.NixOS:
		return WouldRefuse, &activate.NotNixOSError{Node: look.Node.Name}
	case !built:
		return NotBuilt, nil
	case n.Current == c.Out && n.Profile == c.Out:
		return WouldNothing, nil
	case !dep.ReplaceUnknownProfiles && foreign(n.Current):
		return WouldRefuse, &activate.UnknownProfileError{Node: look.Node.Name, Path: n.Current}
	case !dep.ReplaceUnknownProfiles && foreign(n.Profile):
		return WouldRefuse, &activate.UnknownProfileError{Node: look.Node.Name, Path: n.Profile}
	case n.Current == c.Out:
		return WouldDefault, nil
	case known.LastConfirmed == nil && len(n.Deployed) == 0:
		return WouldFirst, nil
	}
	return WouldSwitch, nil
}

// fill asks for the rest.
func (d *Deployer) fill(ctx context.Context, p *Preview, look Outcome[activate.Node], c nixeval.Closure, known state.Node, dep nixeval.Deployment, o PreviewOptions) error {
	h, err := d.Fleet.Host(ctx, look.Node)
	if err != nil {
		return err
	}
	here := exists(c.Out) // else the node builds it
	switch {
	case p.Action == WouldNothing:
		p.Copy = &CopyPreview{}
	case here:
		missing, bytes, err := d.Copier.Missing(ctx, p.Node, h, []string{c.Out})
		if err != nil {
			return &NodeError{Node: p.Node, Step: event.Copy, Err: err}
		}
		p.Copy = &CopyPreview{Paths: len(missing), Bytes: bytes}
	}
	if here || p.Action == WouldNothing {
		wanted := look.Value.ProfileKernel
		if p.Action != WouldNothing {
			wanted = kernelOf(c.Out)
		}
		none, booted := activate.Kernel{}, look.Value.BootedKernel
		needed := booted != none && wanted != none && wanted != booted
		p.Reboot = &needed
	}
	// A node that runs what the hive says, and that has no keys, has none to be removed.
	if settled := known.LastConfirmed != nil && known.LastConfirmed.Path == look.Value.Current; o.Keys && (len(dep.Keys) > 0 || !settled) {
		if err := d.previewKeys(ctx, p, h, dep); err != nil {
			return &NodeError{Node: p.Node, Step: event.Keys, Err: err}
		}
	}
	if o.Units && here && (p.Action == WouldSwitch || p.Action == WouldFirst) {
		return d.previewUnits(ctx, p, h, c)
	}
	return nil
}

func (d *Deployer) previewKeys(ctx context.Context, p *Preview, h secrets.Host, dep nixeval.Deployment) error {
	set, err := d.Uploader.Load(ctx, p.Node, dep, secrets.All)
	if err != nil {
		return err
	}
	result, err := d.Uploader.Plan(ctx, h, set)
	if err != nil {
		return err
	}
	p.Keys = &KeysPreview{Upload: list(result.Uploaded), Adjust: list(result.Adjusted), Remove: list(result.Stale)}
	if p.Action == WouldNothing && result.Changes() {
		p.Action = WouldKeys
	}
	return nil
}

func (d *Deployer) previewUnits(ctx context.Context, p *Preview, h hostOf, c nixeval.Closure) error {
	d.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Copy, Node: p.Node})
	stats, err := d.Copier.Copy(ctx, p.Node, h, []string{c.Out})
	d.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Copy, Node: p.Node, Text: fmt.Sprintf("%d paths", stats.Paths), Failed: err != nil})
	if err != nil {
		return &NodeError{Node: p.Node, Step: event.Copy, Err: err}
	}
	result, err := d.Activator.Activate(ctx, p.Node, h, activate.Request{Path: c.Out, Goal: activate.DryActivate})
	if err != nil {
		return &NodeError{Node: p.Node, Step: event.Activate, Err: err}
	}
	if u := result.Dry; u != nil {
		p.Units = &UnitsPreview{Stop: list(u.Stop), Restart: list(u.Restart), Reload: list(u.Reload), Start: list(u.Start), Skip: list(u.Skip)}
	}
	return nil
}

// kernelOf is the part of a system in the local store that only a reboot changes, as
// a node tells it of its own.
func kernelOf(system string) activate.Kernel {
	resolve := func(name string) string {
		path, _ := filepath.EvalSymlinks(filepath.Join(system, name)) // a container has no kernel
		return path
	}
	params, _ := durable.Read(filepath.Join(system, "kernel-params"), cmdlineSize)
	line, _, _ := strings.Cut(string(params), "\n")
	return activate.Kernel{
		Kernel: resolve("kernel"), Initrd: resolve("initrd"), Modules: resolve("kernel-modules"), Params: strings.Trim(line, " \t"),
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// list is never null in JSON.
func list(names []string) []string { return append([]string{}, names...) }
