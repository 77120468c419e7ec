package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// startProvisioning starts to boot the machines of the nodes, and writes the facts. It returns nil
// if there are no machines to boot.
//
// On a network that nixbench manages, it assigns the addresses, so the facts are complete at once.
// On any other network they are complete when every machine has an address.
func (r *run) startProvisioning(ctx context.Context, nodes []nixeval.Node) (*machineSet, error) {
	m := r.Machines
	if m == nil {
		return nil, nil
	}
	if !m.HasMachines(r.Store.State()) {
		if !m.GeneratesSecrets() || r.Goal == UploadKeys {
			return nil, nil
		}
		return nil, r.writeFacts()
	}
	selected := r.selectMachines(nodes)
	if !r.Goal.activates() || selected != nil && len(selected) == 0 {
		return nil, r.useFacts()
	}
	r.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Provision, Total: len(bootedNodes(r.hive, nodes))})
	fail := func(plan *machinePlan, err error) (*machineSet, error) {
		if plan != nil {
			plan.close()
		}
		r.Send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Provision, Failed: true})
		return nil, err
	}
	plan, err := m.makePlan(ctx, r.Store.State(), selected, r.Recreate)
	if err != nil {
		return fail(nil, err)
	}
	if err := r.checkRecreate(plan); err != nil {
		return fail(plan, err)
	}
	if changes := plan.Disturbing(); len(changes) > 0 && m.Ask != nil {
		if err := m.Ask(changes); err != nil {
			return fail(plan, err)
		}
	}
	if err := r.Record.Plan(plan.Plan); err != nil {
		return fail(plan, err)
	}
	client, err := r.recordMachines(plan, selected == nil)
	if err != nil {
		return fail(plan, err)
	}
	if plan.Network.Mode.Ours() {
		if err := r.writeFacts(); err != nil {
			return fail(plan, err)
		}
	}
	r.Fleet.SetMachines(m.Dir.ClientKey(), r.Store.State())
	b := r.startMachines(ctx, plan, client)
	if !plan.Network.Mode.Ours() {
		b.awaitAddresses.Wait()
		err := b.bootErrors()
		if err == nil || r.KeepGoing && ctx.Err() == nil {
			err = r.writeFacts() // the facts leave out nodes without an address
		}
		if err != nil {
			b.abandonWaits()
			return b, err
		}
	}
	return b, nil
}

// selectMachines returns the nodes whose machines are selected; nil for all. A node that cannot
// be evaluated gets no machine.
func (r *run) selectMachines(nodes []nixeval.Node) []nixeval.Node {
	selected := slices.DeleteFunc(bootedNodes(r.hive, nodes), func(n nixeval.Node) bool { return r.hive.Broken[n.Unit] != nil })
	switch {
	case len(r.hive.Broken) > 0 && !r.KeepGoing:
		return []nixeval.Node{} // the evaluation reports the reason
	case r.Partial || len(r.hive.Broken) > 0:
		return append([]nixeval.Node{}, selected...)
	}
	return nil
}

// useFacts makes the evaluator use the facts file, if there is one and the user named no other.
func (r *run) useFacts() error {
	if r.Eval.Facts == "" && len(bootedNodes(r.hive, r.hive.Nodes)) > 0 && exists(r.Machines.Dir.Facts()) {
		r.Eval.Facts = r.Machines.Dir.Facts()
	}
	return nil
}

// writeFacts writes the facts file, and makes the evaluator use it unless the user named another one.
func (r *run) writeFacts() error {
	recorded := r.Store.State()
	data, err := r.Machines.encodeFacts(recorded)
	if err != nil || data == nil {
		return err
	}
	if err := r.Machines.Dir.WriteFacts(data, recorded.Machines); err != nil {
		return err
	}
	return r.useFacts()
}

// recordMachines writes the cluster's id and the planned machines to the state, and creates their
// keys. The state is written before any machine is created, so that no later run loses track of one.
func (r *run) recordMachines(plan *machinePlan, whole bool) (state.Key, error) {
	dir := r.Machines.Dir
	if err := dir.Create(); err != nil {
		return state.Key{}, err
	}
	client, err := dir.MakeClientKey()
	if err != nil {
		return client, err
	}
	now := r.Store.State()
	next := r.Store.State()
	if next.Cluster == nil {
		next.Cluster = &state.Cluster{ID: plan.Cluster.ID, Hypervisors: map[string]state.Hypervisor{}}
	}
	next.Cluster.Network = stateNetwork(plan.Network)
	for _, p := range plan.Places {
		if p.Hypervisor != "" {
			next.Cluster.Hypervisors[p.Hypervisor] = plan.hypervisors[p.Hypervisor]
		}
		machine := next.Machines[p.Node]
		machine.MAC, machine.Role = p.MAC, r.roleOf(p.Node)
		if p.Address.IsValid() {
			machine.Address = p.Address
		}
		c, hasChange := plan.ChangeOf(p.Node)
		if hasChange && c.Action != provision.Create {
			machine.Hypervisor = p.Hypervisor
			if machine.Created == nil && !c.NeedsImage() { // a run was killed before it recorded the creation
				when := time.Now().UTC()
				machine.Created = &when
			}
		}
		// An existing machine keeps its host key. A new machine gets the key from the state folder.
		if machine.Created == nil || machine.HostKey == "" || hasChange && c.NeedsImage() {
			key, err := dir.MakeHostKey(p.Node)
			if err != nil {
				return client, err
			}
			machine.HostKey = key.Public
		}
		next.Machines[p.Node] = machine
	}
	var stale []string
	if whole {
		stale = staleRecords(plan, now)
	}
	for _, node := range stale {
		next.Removed(node)
	}
	if len(stale) > 0 || !reflect.DeepEqual(now.Cluster, next.Cluster) || !reflect.DeepEqual(now.Machines, next.Machines) {
		if err := r.Store.Update(func(s *state.State) error {
			s.Cluster, s.Machines = next.Cluster, next.Machines
			for _, node := range stale {
				s.Removed(node)
			}
			return nil
		}); err != nil {
			return client, err
		}
	}
	for _, node := range stale {
		if err := dir.RemoveHostKey(node); err != nil {
			return client, err
		}
	}
	return client, nil
}

// staleRecords returns the recorded nodes that the hive no longer has and whose machines do not
// exist any more. Their addresses are free.
func staleRecords(plan *machinePlan, recorded *state.State) []string {
	var out []string
	for _, node := range sortedKeys(recorded.Machines) {
		desired := slices.ContainsFunc(plan.Places, func(p provision.Place) bool { return p.Node == node })
		present := slices.ContainsFunc(plan.Changes, func(c provision.Change) bool { return c.Node == node })
		if !desired && !present {
			out = append(out, node)
		}
	}
	return out
}

func (r *run) roleOf(node string) string {
	for _, n := range r.hive.Nodes {
		if n.Name == node {
			return n.Role
		}
	}
	return ""
}

// nodeFile is /var/lib/nixbench/node.json: the node's identity, for closures that several nodes share.
type nodeFile struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
	Role    string `json:"role"`
	Index   int    `json:"index"`
	// Address is absent if it is discovered after the boot. It is then uploaded together with the keys.
	Address netip.Addr `json:"address,omitzero"`
}

const nodeFilePath = "/var/lib/nixbench/node.json"

// nodeDeployment returns the deployment options of a node. If the machine's address was discovered
// after its creation and the node is a cluster member, node.json with the address is among the keys.
func (r *run) nodeDeployment(n nixeval.Node) (nixeval.Deployment, error) {
	d := r.hive.Unit(n.Unit).Deployment
	recorded := r.Store.State()
	m := recorded.Machines[n.Name]
	if d.Engine == nil || recorded.Cluster == nil || provision.Mode(recorded.Cluster.Network.Mode).Ours() || !m.Address.IsValid() {
		return d, nil
	}
	data, err := json.Marshal(nodeFile{Version: 1, Cluster: r.hive.ClusterName(), Name: n.Name, Role: n.Role, Index: n.Index, Address: m.Address})
	if err != nil {
		return d, err
	}
	keys := maps.Clone(d.Keys)
	if keys == nil {
		keys = map[string]nixeval.Key{}
	}
	keys["nixbench-node"] = nixeval.Key{
		Name: path.Base(nodeFilePath), DestDir: path.Dir(nodeFilePath), Path: nodeFilePath, Text: nixeval.NewSecret(string(data) + "\n"),
		User: "root", Group: "root", Permissions: "0644", UploadAt: "pre-activation",
	}
	d.Keys = keys
	return d, nil
}

// machineIdentity returns the identity that a machine gets: authorized key, node file and host key.
// The host key is left out if the state folder no longer has it and the disk is kept: the
// machine then keeps its own.
func (m *machineTask) machineIdentity(s provision.Spec) (provision.Identity, error) {
	id := s.Identity
	id.AuthorizedKeys = []string{m.clientKey.Public}
	data, err := json.Marshal(nodeFile{Version: 1, Cluster: m.plan.Cluster.Name, Name: s.Node, Role: s.Role, Index: s.Index, Address: s.Address})
	if err != nil {
		return id, err
	}
	id.Node = append(data, '\n')
	key, err := m.Machines.Dir.MakeHostKey(s.Node)
	if err != nil {
		return id, err
	}
	if key.Public == m.Store.State().Machines[s.Node].HostKey {
		id.HostKey = key.Private
	} else if m.change.NeedsImage() {
		return id, failure.On(s.Node, errors.New("its host key file is missing"))
	}
	return id, nil
}

// removeObsolete removes the machines that the hive no longer has, and unused images and networks.
// It is called after everything else has succeeded.
func (r *run) removeObsolete(ctx context.Context, b *machineSet, cluster clusterState) error {
	if b == nil {
		return nil
	}
	b.pending.Wait()
	var obsolete []removal
	unused := false
	for _, c := range b.plan.Changes {
		if c.Action == provision.Remove {
			obsolete = append(obsolete, removal{Node: c.Node, Role: c.Role, Hypervisor: c.Hypervisor, duplicate: b.plan.HasMachine(c.Node)})
		}
		unused = unused || c.Action == provision.Remove || c.Action == provision.Recreate
	}
	if !unused {
		return nil
	}
	// The engines are asked whatever the goal is, and even if they were asked before: only they can
	// tell whether a cluster still depends on these nodes.
	if err := r.removeMembers(ctx, cluster.engines, removedNodes(obsolete), r.WithoutDrain, r.Drain); err != nil {
		return err
	}
	w := &destroyer{Machines: r.Machines, Store: r.Store, Record: r.Record, Send: r.Send, parallel: r.Parallel, cluster: b.plan.Cluster, hosts: b.plan.providers, outcome: Removed}
	if _, err := w.removeAll(ctx, obsolete); err != nil {
		return err
	}
	return w.cleanUp(ctx)
}
