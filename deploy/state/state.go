package state

import (
	"maps"
	"slices"
	"time"
)

// State is what is known of a cluster's nodes between runs.
type State struct {
	Version int `json:"version"`
	// Nodes holds every node that was ever deployed to, by name.
	Nodes map[string]Node `json:"nodes"`
	// Intents are effects that were begun and not finished. Between runs there are
	// some only where a run was killed.
	Intents []Intent `json:"intents"`
	// Cluster is nil as long as we have booted no machine, and Machines are those that
	// we have, or are about to, by node.
	Cluster  *Cluster           `json:"cluster,omitempty"`
	Machines map[string]Machine `json:"machines,omitempty"`
}

// Node is what is known of one node.
type Node struct {
	Good    *Deployment `json:"good,omitempty"`    // the last one that was confirmed
	Before  *Deployment `json:"before,omitempty"`  // what the node ran before Before.Run changed it
	HostKey string      `json:"hostKey,omitempty"` // as in a known_hosts file
	Paths   []string    `json:"paths,omitempty"`   // systems that we deployed, the newest last
}

// Deployment is a system on a node.
type Deployment struct {
	Path       string    `json:"path"`
	Generation int       `json:"generation,omitempty"`
	Run        string    `json:"run"`
	Time       time.Time `json:"time"`
}

// Intent is an effect on a node that is written down before it happens.
type Intent struct {
	Run   string    `json:"run"`
	Node  string    `json:"node"`
	Step  string    `json:"step"`           // as in `activate`
	Path  string    `json:"path,omitempty"` // of a reboot: the id of the boot that it ends
	Since time.Time `json:"since"`
}

// RebootNode is the step of an intent to reboot a node.
const RebootNode = "reboot"

// remembered is how many of a node's paths are kept. Whether an older one is ours,
// the node's own profile history tells.
const remembered = 10

// Clone is a copy that may be changed.
func (s *State) Clone() *State { return s.clone() }

func (s *State) clone() *State {
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

// Begin writes an intent down. The same step of the same run is there once.
func (s *State) Begin(i Intent) {
	s.Finish(i.Run, i.Node, i.Step)
	s.Intents = append(s.Intents, i)
}

// Finish removes the intent to do step.
func (s *State) Finish(run, node, step string) {
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool {
		return i.Run == run && i.Node == node && i.Step == step
	})
}

// Left gives what other runs than run left unfinished on node, in the order in
// which it was begun.
func (s *State) Left(run, node string) []Intent {
	var left []Intent
	for _, i := range s.Intents {
		if i.Node == node && i.Run != run {
			left = append(left, i)
		}
	}
	return left
}

// Rebooting gives the reboot that a run began on node last and has not seen the end of, or nil.
func (s *State) Rebooting(node string) *Intent {
	var last *Intent
	for _, i := range s.Intents {
		if i.Node == node && i.Step == RebootNode {
			last = &i
		}
	}
	return last
}

// Rebooted removes the reboots that were begun on node.
func (s *State) Rebooted(node string) {
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool { return i.Node == node && i.Step == RebootNode })
}

// Settle removes what other runs than run left unfinished on node, once that is
// finished or undone.
func (s *State) Settle(run, node string) {
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool { return i.Node == node && i.Run != run })
}

// Replace notes that run is about to change node, and what it has run until now.
// The first word of a run counts. What a killed run may have left half-switched is
// nothing to go back to: while its intents are there, what was before it stays.
func (s *State) Replace(run, node string, now Deployment) {
	n := s.Nodes[node]
	if b := n.Before; b != nil {
		killed := slices.ContainsFunc(s.Left(run, node), func(i Intent) bool { return i.Run == b.Run })
		if b.Run == run || killed {
			return
		}
	}
	now.Run = run
	n.Before = &now
	s.Nodes[node] = n
}

// Confirm notes that node runs d, and that it is well.
func (s *State) Confirm(node string, d Deployment) {
	n := s.Nodes[node]
	n.Good = &d
	// A slice of its own: the old one may be in an earlier State.
	n.Paths = append(slices.DeleteFunc(slices.Clone(n.Paths), func(p string) bool { return p == d.Path }), d.Path)
	n.Paths = n.Paths[max(0, len(n.Paths)-remembered):]
	s.Nodes[node] = n
}

// Deployed says whether path is a system that we deployed to node.
func (s *State) Deployed(node, path string) bool { return slices.Contains(s.Nodes[node].Paths, path) }

// runs gives the runs that the state speaks of.
func (s *State) runs() map[string]bool {
	in := map[string]bool{}
	for _, n := range s.Nodes {
		for _, d := range []*Deployment{n.Good, n.Before} {
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
