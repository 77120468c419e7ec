package state

import (
	"maps"
	"slices"
	"time"
)

// State is what nixbench records about a cluster between runs.
type State struct {
	Version int `json:"version"`
	// Nodes contains a record of every node with a deployment. The key is the node's name.
	Nodes map[string]Node `json:"nodes"`
	// Intents are operations on nodes and machines that a run has begun and not finished. If no run is active, an
	// intent means that its run was killed during the operation.
	Intents []Intent `json:"intents"`
	// Cluster is nil until the first machine is booted. Machines contains the machines that
	// exist or are about to be created. The key is the node's name.
	Cluster  *Cluster           `json:"cluster,omitempty"`
	Machines map[string]Machine `json:"machines,omitempty"`
}

type Node struct {
	LastConfirmed *Deployment `json:"good,omitempty"`    // the last deployment that was confirmed
	Before        *Deployment `json:"before,omitempty"`  // the system that the node ran before the run Before.Run changed the node
	HostKey       string      `json:"hostKey,omitempty"` // in the format of known_hosts
	Paths         []string    `json:"paths,omitempty"`   // the last maxPaths systems that were deployed to the node, the newest last
	// Engine is the kind of the engine of LastConfirmed. It is empty if the deployed system has no engine, or if an
	// earlier version of nixbench deployed the system.
	Engine string `json:"engine,omitempty"`
	// Memberships contains the node's last membership in each engine, such as slurm or kubernetes. The key is the kind of the engine.
	Memberships map[string]Membership `json:"memberships,omitempty"`
}

// Deployment is a system that was deployed to a node, with the run and the time of the deployment.
type Deployment struct {
	Path       string    `json:"path"`
	Generation int       `json:"generation,omitempty"`
	Run        string    `json:"run"`
	Time       time.Time `json:"time"`
}

// Intent is the record of an operation that changes a node or its machine. It is written before the operation begins.
type Intent struct {
	Run   string    `json:"run"`
	Node  string    `json:"node"`
	Step  string    `json:"step"`           // the operation, such as activate
	Path  string    `json:"path,omitempty"` // the system's store path; for a reboot: the boot id before the reboot
	Since time.Time `json:"since"`
}

const RebootNode = "reboot"

// maxPaths is the maximum length of Node.Paths. Older systems can be found in the profile of the node.
const maxPaths = 10

// Clone returns a copy of the state with maps and a list of intents of its own, which are never nil.
func (s *State) Clone() *State {
	c := &State{Version: s.Version, Nodes: maps.Clone(s.Nodes), Intents: slices.Clone(s.Intents), Machines: maps.Clone(s.Machines)}
	if s.Cluster != nil {
		cluster := *s.Cluster
		cluster.Hypervisors = maps.Clone(cluster.Hypervisors)
		c.Cluster = &cluster
	}
	if c.Machines == nil {
		c.Machines = map[string]Machine{}
	}
	if c.Nodes == nil {
		c.Nodes = map[string]Node{}
	}
	if c.Intents == nil {
		c.Intents = []Intent{} // `[]` in JSON, not null
	}
	return c
}

// Begin adds an intent, or replaces the intent of the same run, node and step.
func (s *State) Begin(i Intent) {
	s.Finish(i.Run, i.Node, i.Step)
	s.Intents = append(s.Intents, i)
}

// Finish removes the [Intent] with this run, node and step. It is called when the operation is completed.
func (s *State) Finish(run, node, step string) {
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool {
		return i.Run == run && i.Node == node && i.Step == step
	})
}

func (s *State) OpenIntents(run, node string) []Intent {
	return slices.DeleteFunc(slices.Clone(s.Intents), func(i Intent) bool { return i.Node != node || i.Run == run })
}

// LastIntent returns the last intent of a run to do this step of a node or its machine, which no run has finished; nil: none.
func (s *State) LastIntent(node, step string) *Intent {
	for _, i := range slices.Backward(s.Intents) {
		if i.Node == node && i.Step == step {
			return &i
		}
	}
	return nil
}

// DropIntents removes the intents of all runs for this step of a node.
func (s *State) DropIntents(node, step string) {
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool { return i.Node == node && i.Step == step })
}

// DropOpenIntents removes the intents of all other runs for a node, when their operations are completed or undone.
func (s *State) DropOpenIntents(run, node string) {
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool { return i.Node == node && i.Run != run })
}

// RecordBefore records the deployment that the node runs before this run changes the node, which is the argument now. A rollback can
// return to this deployment. Further calls by the same run for the node do nothing. RecordBefore also does nothing if an earlier run was
// killed while it changed the node: that change may be incomplete, so the deployment from before the earlier run stays recorded.
func (s *State) RecordBefore(run, node string, now Deployment) {
	n := s.Nodes[node]
	if b := n.Before; b != nil {
		killed := slices.ContainsFunc(s.OpenIntents(run, node), func(i Intent) bool { return i.Run == b.Run })
		if b.Run == run || killed {
			return
		}
	}
	now.Run = run
	n.Before = &now
	s.Nodes[node] = n
}

// Confirm records d as the last deployment of the node that was confirmed over a new connection.
func (s *State) Confirm(node string, d Deployment) {
	n := s.Nodes[node]
	n.LastConfirmed = &d
	// Clone the slice Paths, because an earlier copy of the State may share it.
	n.Paths = append(slices.DeleteFunc(slices.Clone(n.Paths), func(p string) bool { return p == d.Path }), d.Path)
	n.Paths = n.Paths[max(0, len(n.Paths)-maxPaths):]
	s.Nodes[node] = n
}

func (s *State) Runs() map[string]bool {
	in := map[string]bool{}
	for _, n := range s.Nodes {
		for _, d := range []*Deployment{n.LastConfirmed, n.Before} {
			if d != nil {
				in[d.Run] = true
			}
		}
	}
	for _, i := range s.Intents {
		in[i.Run] = true
	}
	return in
}

type NodeResult struct {
	Node    string  `json:"node"`
	Unit    string  `json:"unit"`
	Path    string  `json:"path,omitempty"`
	Before  int     `json:"before,omitempty"` // the generation of the node's system profile before the run
	After   int     `json:"after,omitempty"`  // the generation of the node's system profile after the run
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
}

// Outcome says how a run ended for a node, such as failed.
type Outcome string

const (
	Unchanged  Outcome = "unchanged"
	Switched   Outcome = "switched"
	RolledBack Outcome = "rolled-back"
	Failed     Outcome = "failed"
	Skipped    Outcome = "skipped"
	Away       Outcome = "away" // the node may be away, and was not reachable when the run began
)
