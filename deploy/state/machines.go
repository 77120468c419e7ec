package state

import (
	"crypto/rand"
	"encoding/hex"
	"net/netip"
	"slices"
	"time"
)

// Cluster is where the machines are that we have booted. It outlives what the hive
// says, so that they can be removed when the hive no longer has them.
type Cluster struct {
	ID          string                `json:"id"` // 16 hex digits; the mark of all that is ours
	Network     Network               `json:"network"`
	Hypervisors map[string]Hypervisor `json:"hypervisors"` // those that may have something of ours
}

// Network is the one that the machines are on.
type Network struct {
	Name   string `json:"name"`
	Mode   string `json:"mode"`
	CIDR   string `json:"cidr,omitempty"`
	Bridge string `json:"bridge,omitempty"`
	Domain string `json:"domain,omitempty"`
}

// Hypervisor says how one is reached.
type Hypervisor struct {
	URI      string `json:"uri"`
	Pool     string `json:"pool"`
	PoolPath string `json:"poolPath"`
}

// Machine is what is known of a node's machine. Address and keys are set down before it
// is made, and stay until it is removed.
type Machine struct {
	Role       string     `json:"role,omitempty"`
	Hypervisor string     `json:"hypervisor,omitempty"`
	MAC        string     `json:"mac"`
	Address    netip.Addr `json:"address,omitzero"`
	HostKey    string     `json:"hostKey"`         // public
	Image      *Image     `json:"image,omitempty"` // what it was made from; nil until then
	Created    *time.Time `json:"created,omitempty"`
}

// Image is what a machine was made from.
type Image struct {
	Hash    string `json:"hash"`
	Format  string `json:"format,omitempty"`
	Kernel  string `json:"kernel,omitempty"` // with direct kernel boot
	Initrd  string `json:"initrd,omitempty"`
	Cmdline string `json:"cmdline,omitempty"`
}

// NewCluster draws an id.
func NewCluster() *Cluster {
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	return &Cluster{ID: hex.EncodeToString(id[:]), Hypervisors: map[string]Hypervisor{}}
}

// Steps of machines, as intents have them.
const (
	MakeMachine   = "machine"        // it is made, or started; until it is ready
	RemoveMachine = "remove-machine" // until nothing is left
)

// Unready tells whether a run began to make or start the node's machine, and has not seen it ready.
func (s *State) Unready(node string) bool {
	return slices.ContainsFunc(s.Intents, func(i Intent) bool { return i.Node == node && i.Step == MakeMachine })
}

// Making notes where and from what the node's machine is about to be made. What was deployed
// to one before it is gone.
func (s *State) Making(node, hypervisor string, image Image) {
	m := s.Machines[node]
	m.Hypervisor, m.Image, m.Created = hypervisor, &image, nil
	s.Machines[node] = m
	delete(s.Nodes, node)
}

// Made notes that it is there.
func (s *State) Made(node string, at time.Time) {
	m := s.Machines[node]
	if m.Created == nil {
		m.Created = &at
	}
	s.Machines[node] = m
}

// MachineReady removes what any run has noted about making the machine.
func (s *State) MachineReady(node string) {
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool { return i.Node == node && i.Step == MakeMachine })
}

// Removed forgets a machine, and what was deployed to it.
func (s *State) Removed(node string) {
	delete(s.Machines, node)
	delete(s.Nodes, node)
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool { return i.Node == node })
}
