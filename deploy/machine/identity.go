package machine

import (
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"path"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
	"github.com/nixbench/nixbench/nixeval"
)

// nodeFile is the content of /var/lib/nixbench/node.json. A node whose closure is shared with other nodes reads its
// identity from this file.
type nodeFile struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
	Role    string `json:"role"`
	Index   int    `json:"index"`
	// Address is missing at the first boot if the address is discovered after the boot. In that case NodeDeployment
	// later adds node.json with the address to the keys of the node.
	Address netip.Addr `json:"address,omitzero"`
}

const nodeFilePath = "/var/lib/nixbench/node.json"

// NodeDeployment returns the deployment options of a node. If the node is a cluster member, and the address of its machine was
// discovered after the creation, or the machine was not created from an image, the keys contain node.json with the address. recorded is
// the state of the run.
func (m *Manager) NodeDeployment(n nixeval.Node, recorded *state.Store) (nixeval.Deployment, error) {
	d := m.Hive.Unit(n.Unit).Deployment
	machine, cluster, err := recorded.MachineOf(n.Name)
	if err != nil || d.Engine == nil || cluster == nil || cluster.Network.Mode.Ours() || !machine.Address.IsValid() {
		return d, err
	}
	data, err := json.Marshal(nodeFile{Version: 1, Cluster: m.Hive.ClusterName(), Name: n.Name, Role: n.Role, Index: n.Index, Address: machine.Address})
	if err != nil {
		return d, err
	}
	keys := map[string]nixeval.Key{}
	maps.Copy(keys, d.Keys)
	keys["nixbench-node"] = nixeval.Key{
		Name: path.Base(nodeFilePath), DestDir: path.Dir(nodeFilePath), Path: nodeFilePath, Text: nixeval.NewSecret(string(data) + "\n"),
		User: "root", Group: "root", Permissions: "0644", UploadAt: "pre-activation",
	}
	d.Keys = keys
	return d, nil
}

// machineIdentity returns the identity that a machine gets: authorized key, node file and host key. The host key is empty if the state
// folder no longer has the key and the machine keeps its disk. In this case the disk contains the key.
func (m *Task) machineIdentity(s provider.Spec) (provider.Identity, error) {
	id := s.Identity
	id.AuthorizedKey = m.plan.clientKey.Public
	data, err := json.Marshal(nodeFile{Version: 1, Cluster: m.plan.Cluster.Name, Name: s.Node, Role: s.Role, Index: s.Index, Address: s.Address})
	if err != nil {
		return id, err
	}
	id.Node = append(data, '\n')
	key, err := keys.MakeHostKey(m.Dir, s.Node)
	if err != nil {
		return id, err
	}
	if key.Public == m.Store.State().Machines[s.Node].HostKey {
		id.HostKey = key.Private
	} else if m.Change.Creates() {
		return id, failure.On(s.Node, errors.New("its host key file is missing"))
	}
	return id, nil
}
