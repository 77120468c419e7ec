package state

import (
	"crypto/rand"
	"encoding/hex"
	"net/netip"
	"slices"
	"time"
)

// Cluster records where the cluster's machines are. It does not depend on the current hive, so
// that machines can be removed when the hive no longer has them.
type Cluster struct {
	ID          string                `json:"id"` // 16 hex digits; marks every object of the cluster on a hypervisor
	Network     Network               `json:"network"`
	Hypervisors map[string]Hypervisor `json:"hypervisors"` // all that may have objects of the cluster
}

// Network is the machines' network.
type Network struct {
	Name   string `json:"name"`
	Mode   string `json:"mode"`
	CIDR   string `json:"cidr,omitempty"`
	Bridge string `json:"bridge,omitempty"`
	Domain string `json:"domain,omitempty"`
}

// Hypervisor is the connection to a hypervisor.
type Hypervisor struct {
	URI      string `json:"uri"`
	Pool     string `json:"pool"`
	PoolPath string `json:"poolPath"`
}

// Machine is the record of a node's machine. Address and keys are recorded before the machine
// is created, and kept until it is removed.
type Machine struct {
	Role       string     `json:"role,omitempty"`
	Hypervisor string     `json:"hypervisor,omitempty"`
	MAC        string     `json:"mac"`
	Address    netip.Addr `json:"address,omitzero"`
	HostKey    string     `json:"hostKey"`         // public
	Image      *Image     `json:"image,omitempty"` // nil before it was created
	Created    *time.Time `json:"created,omitempty"`
}

// Image is the image from which a machine was created.
type Image struct {
	Hash    string `json:"hash"`
	Format  string `json:"format,omitempty"`
	Kernel  string `json:"kernel,omitempty"` // with direct kernel boot
	Initrd  string `json:"initrd,omitempty"`
	Cmdline string `json:"cmdline,omitempty"`
}

// NewCluster returns an empty cluster with a random id.
func NewCluster() *Cluster {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return &Cluster{ID: hex.EncodeToString(id[:]), Hypervisors: map[string]Hypervisor{}}
}

// Steps of intents about machines.
const (
	MakeMachine   = "machine"        // the machine is created or started; finished when it is ready
	RemoveMachine = "remove-machine" // finished when all of the machine is removed
)

// Unready reports whether a run began to create or start the node's machine and did not see it ready.
func (s *State) Unready(node string) bool {
	return slices.ContainsFunc(s.Intents, func(i Intent) bool { return i.Node == node && i.Step == MakeMachine })
}

// Making records that the node's machine is about to be created, where and from which image. It
// deletes the record of deployments to an earlier machine of the node.
func (s *State) Making(node, hypervisor string, image Image) {
	m := s.Machines[node]
	m.Hypervisor, m.Image, m.Created = hypervisor, &image, nil
	s.Machines[node] = m
	delete(s.Nodes, node)
}

// Made records when the node's machine was created.
func (s *State) Made(node string, at time.Time) {
	m := s.Machines[node]
	if m.Created == nil {
		m.Created = &at
	}
	s.Machines[node] = m
}

// MachineReady removes the intents of all runs to create or start the node's machine.
func (s *State) MachineReady(node string) {
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool { return i.Node == node && i.Step == MakeMachine })
}

// Removed deletes the record of a node's machine, its deployments and its intents.
func (s *State) Removed(node string) {
	delete(s.Machines, node)
	delete(s.Nodes, node)
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool { return i.Node == node })
}

// MachineOf returns the recorded machine of a node, which is zero if there is none, and the cluster of
// the machines.
func (s *State) MachineOf(node string) (Machine, *Cluster, error) {
	return s.Machines[node], s.Cluster, nil
}
