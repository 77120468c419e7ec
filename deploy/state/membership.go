package state

import (
	"bytes"
	"encoding/json"
	"maps"

	"github.com/nixbench/nixbench/nixeval"
)

// Membership is the membership of a node in a cluster, as deployment.engine of the hive described it when the node was deployed. If the
// hive now has another engine, nixbench uses this record to work with the engine of the system that the node still runs.
type Membership struct {
	Role     string          `json:"role"`
	HiveRole string          `json:"hiveRole,omitempty"` // the role in the hive that the node had
	OneByOne bool            `json:"oneByOne,omitempty"`
	Order    int             `json:"order,omitempty"`
	Settings json.RawMessage `json:"settings,omitempty"`
	// Drained is set before nixbench drains the member because its node changes to another engine. It is cleared when
	// the member is uncordoned. That may be much later, when the node runs this engine again.
	Drained bool `json:"drained,omitempty"`
}

func NewMembership(hiveRole string, e *nixeval.Engine) *Membership {
	if e == nil {
		return nil
	}
	return &Membership{Role: e.Role, HiveRole: hiveRole, OneByOne: e.OneByOne, Order: e.Order, Settings: e.Settings}
}

func (m Membership) Engine(kind string) nixeval.Engine {
	return nixeval.Engine{Kind: kind, Role: m.Role, OneByOne: m.OneByOne, Order: m.Order, Settings: m.Settings}
}

// HasMembership reports whether m is nil, or the recorded membership of the node in an engine, without regard to Drained.
func (n Node) HasMembership(kind string, m *Membership) bool {
	recorded, ok := n.Memberships[kind]
	if m == nil || !ok {
		return m == nil
	}
	recorded.Drained = m.Drained
	a, _ := json.Marshal(recorded) // compared as JSON: the settings may contain spaces
	b, _ := json.Marshal(m)
	return bytes.Equal(a, b)
}

func (s *State) RecordMembership(node, kind string, m Membership) {
	m.Drained = s.Nodes[node].Memberships[kind].Drained
	s.setMembership(node, kind, m)
}

// setMembership replaces the recorded membership of a node. It clones the map, because an earlier State may share it.
func (s *State) setMembership(node, kind string, m Membership) {
	n := s.Nodes[node]
	n.Memberships = maps.Clone(n.Memberships)
	if n.Memberships == nil {
		n.Memberships = map[string]Membership{}
	}
	n.Memberships[kind] = m
	s.Nodes[node] = n
}

func (s *State) RecordEngine(node, kind string) {
	n := s.Nodes[node]
	n.Engine = kind
	s.Nodes[node] = n
}

// RecordDrained sets Drained in the recorded membership of a node. It does nothing if there is no record.
func (s *State) RecordDrained(node, kind string, drained bool) {
	if m, ok := s.Nodes[node].Memberships[kind]; ok {
		m.Drained = drained
		s.setMembership(node, kind, m)
	}
}
