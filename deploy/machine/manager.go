// Package machine creates, starts and removes the machines that a hive describes.
//
// The package changes compares the desired machines with the observed machines, without any I/O. [Manager.MakePlan] compares the machines
// in the hive with the machines on the hypervisors and in the state, and changes nothing. [Starter.AskAndRecord] writes the plan to the
// state before any machine is changed, and [Starter.Start] executes the plan: it prepares networks and images, creates or starts the
// machines, and waits until the nodes can be deployed. Each machine of the [Set] becomes ready independently of the others.
// [Manager.PlanDestroy] and [Manager.Destroy] remove machines, [Manager.Status] and [Manager.Examine] report.
package machine

import (
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
	"github.com/nixbench/nixbench/nixeval"
)

type Manager struct {
	Hive  *nixeval.Hive
	Dir   state.Dir
	Open  Opener
	Vault *vault.Vault                                 // secrets that nixbench generates
	Eval  *nixeval.Evaluator                           // builds the images of roles without the option image
	Keep  func(built map[string]nixeval.Closure) error // creates garbage collector roots for built images, under the given names; nil: no roots
	Ask   func(changes []changes.Change) error         // asks the user to confirm changes that stop running machines; nil: the user is not asked
	Send  event.Sink
	// APIPort is the port of the cluster's endpoint in the facts if the hive sets no port. If it is 0, the endpoint in
	// the facts has no port.
	APIPort int
	// AccessFiles are the names of files with access to the cluster, such as kubeconfigs, see [state.Dir.AccessFile].
	// They are removed when the cluster is removed.
	AccessFiles []string
}

// HasMachines reports whether the hive has nodes that nixbench boots, or the state has a cluster from an earlier run.
func (m *Manager) HasMachines(recorded *state.State) bool {
	return m != nil && (len(Booted(m.Hive, m.Hive.Nodes)) > 0 || recorded.Cluster != nil)
}

type Starter struct {
	*Manager
	Fleet       *fleet.Fleet
	Store       *state.Store
	RunID       string
	Parallel    int                       // maximum number of machines that are created at the same time; 0: no limit
	BootTimeout time.Duration             // time limit for a machine to become ready; 0: the result of bootTimeLimit
	Deferred    func(changes.Change) bool // whether a change is executed later, when the deployment of its node begins; nil: no change is
}

func (m *Manager) MakeHostKeys(recorded *state.State) (map[string]string, error) {
	out := map[string]string{}
	for _, n := range m.Hive.Nodes {
		if n.Role == "" {
			continue // nixbench does not create the machine
		}
		if out[n.Name] = recorded.Machines[n.Name].HostKey; out[n.Name] == "" {
			key, err := keys.MakeHostKey(m.Dir, n.Name)
			if err != nil {
				return nil, err
			}
			out[n.Name] = key.Public
		}
	}
	return out, nil
}
