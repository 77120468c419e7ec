package state

import (
	"crypto/rand"
	"encoding/hex"
	"net/netip"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// Cluster records the network and the hypervisors of the cluster's machines. nixbench uses this record, and not the
// hive, to remove machines that are no longer in the hive.
type Cluster struct {
	ID          string                         `json:"id"` // 16 hex digits; marks every object of the cluster on a hypervisor
	Network     provider.Network               `json:"network"`
	Hypervisors map[string]provider.Hypervisor `json:"hypervisors"` // name in the hive → hypervisor, for all hypervisors that may have objects of the cluster
}

// Machine is the record of a node's machine. The address and the host key are recorded before the
// machine is created, and kept until the machine is removed.
type Machine struct {
	Role       string          `json:"role,omitempty"`
	Hypervisor string          `json:"hypervisor,omitempty"`
	MAC        string          `json:"mac"`
	Address    netip.Addr      `json:"address,omitzero"`
	HostKey    string          `json:"hostKey"`           // the machine's public host key
	Image      *provider.Image `json:"image,omitempty"`   // the image from which the machine was created; nil until nixbench begins to create it
	Created    *time.Time      `json:"created,omitempty"` // nil until the machine has been created
}

func NewCluster() *Cluster {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return &Cluster{ID: hex.EncodeToString(id[:]), Hypervisors: map[string]provider.Hypervisor{}}
}

const (
	MakeMachine   = "machine"        // the step that creates or starts a machine; finished when the machine is ready
	RemoveMachine = "remove-machine" // the step that removes a machine; finished when the machine and its disks are removed
)

func (s *State) HasIntent(node, step string) bool { return s.LastIntent(node, step) != nil }

// RecordPlannedMachine records the hypervisor and the image of the node's machine before the machine is created. It deletes the record
// of deployments to an earlier machine.
func (s *State) RecordPlannedMachine(node, hypervisor string, image provider.Image) {
	m := s.Machines[node]
	m.Hypervisor, m.Image, m.Created = hypervisor, &image, nil
	s.Machines[node] = m
	delete(s.Nodes, node)
}

// RecordCreationTime records the time when the node's machine was created. It keeps a time that is already recorded.
func (s *State) RecordCreationTime(node string, at time.Time) {
	m := s.Machines[node]
	if m.Created == nil {
		m.Created = &at
	}
	s.Machines[node] = m
}

// Removed deletes the records of a node: its machine, its deployments and its intents.
func (s *State) Removed(node string) {
	delete(s.Machines, node)
	delete(s.Nodes, node)
	s.Intents = slices.DeleteFunc(s.Intents, func(i Intent) bool { return i.Node == node })
}

// MachineOf returns the record of a node's machine, or a zero Machine, and the recorded cluster. The error is always nil.
func (s *State) MachineOf(node string) (Machine, *Cluster, error) {
	return s.Machines[node], s.Cluster, nil
}
