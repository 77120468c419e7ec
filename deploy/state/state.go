package state

import (
	"maps"
	"slices"
	"time"
)

// State is what nixbench records about a cluster between runs.
type State struct {
	Version int `json:"version"`
	// Nodes contains every node that was deployed to, by name.
	Nodes map[string]Node `json:"nodes"`
	// Intents are effects that were begun and are not finished. Between runs, an intent means
	// that a run was killed.
	Intents []Intent `json:"intents"`
	// Cluster is nil until the first machine is booted. Machines contains the machines that
	// were created or are about to be, by node.
	Cluster  *Cluster           `json:"cluster,omitempty"`
	Machines map[string]Machine `json:"machines,omitempty"`
}

// Node is the record of one node.
type Node struct {
	LastConfirmed *Deployment `json:"good,omitempty"`    // the last deployment that was confirmed
	Before        *Deployment `json:"before,omitempty"`  // what the node ran before the run Before.Run changed it
	HostKey       string      `json:"hostKey,omitempty"` // as in a known_hosts file
	Paths         []string    `json:"paths,omitempty"`   // systems that were deployed to it, the newest last
}

// Deployment is a system on a node.
type Deployment struct {
	Path       string    `json:"path"`
	Generation int       `json:"generation,omitempty"`
	Run        string    `json:"run"`
	Time       time.Time `json:"time"`
}

// Intent is an effect on a node. It is recorded before the effect happens.
type Intent struct {
	Run   string    `json:"run"`
	Node  string    `json:"node"`
	Step  string    `json:"step"`           // as in `activate`
	Path  string    `json:"path,omitempty"` // of a reboot: the id of the boot that it ends
	Since time.Time `json:"since"`
}

// RebootNode is the step of an intent to reboot a node.
const RebootNode = "reboot"

// maxPaths is how many of a node's paths are kept. Older ones are in the node's own profile
// history.
const maxPaths = 10

// Clone returns a copy that may be changed.
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

// Begin adds an intent. It replaces an intent of the same run, node and step.
func (s *State) Begin(i Intent) {
	s.Finish(i.Run, i.Node, i.Step)
	s.Intents = append(s.Intents, i)
}

// Finish removes the intent of a run to do step on node.
func (s *State) Finish(run, node, step string) {
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool {
		return i.Run == run && i.Node == node && i.Step == step
	})
}

// OpenIntents returns the intents on node of all runs except run, the oldest first.
func (s *State) OpenIntents(run, node string) []Intent {
	var left []Intent
	for _, i := range s.Intents {
		if i.Node == node && i.Run != run {
			left = append(left, i)
		}
	}
	return left
}

// Rebooting returns the latest intent to reboot node, or nil.
func (s *State) Rebooting(node string) *Intent {
	var last *Intent
	for _, i := range s.Intents {
		if i.Node == node && i.Step == RebootNode {
			last = &i
		}
	}
	return last
}

// Rebooted removes all intents to reboot node.
func (s *State) Rebooted(node string) {
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool { return i.Node == node && i.Step == RebootNode })
}

// DropOpenIntents removes the intents on node of all runs except run. It is called when their
// effects are completed or undone.
func (s *State) DropOpenIntents(run, node string) {
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool { return i.Node == node && i.Run != run })
}

// RecordBefore records the deployment that node runs before run changes it. A second call of the
// same run has no effect. Neither has a call while a killed run has open intents on the node: the
// node may be half-switched, so the deployment from before the killed run stays recorded.
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

// Confirm records that node runs d and was confirmed.
func (s *State) Confirm(node string, d Deployment) {
	n := s.Nodes[node]
	n.LastConfirmed = &d
	// Clone: an earlier State may share the slice.
	n.Paths = append(slices.DeleteFunc(slices.Clone(n.Paths), func(p string) bool { return p == d.Path }), d.Path)
	n.Paths = n.Paths[max(0, len(n.Paths)-maxPaths):]
	s.Nodes[node] = n
}

// Deployed reports whether path is one of the recorded systems of node.
func (s *State) Deployed(node, path string) bool { return slices.Contains(s.Nodes[node].Paths, path) }

// referencedRuns returns the runs that the state refers to.
func (s *State) referencedRuns() map[string]bool {
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
