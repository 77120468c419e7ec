package engine

import (
	"fmt"

	"github.com/nixbench/nixbench/nixeval"
)

// Kind describes an engine to the rest of nixbench. Name, Title, New and UsageForm are required.
type Kind struct {
	Name  string // the value of deployment.engine.kind, such as "kubernetes"
	Title string // the name of the software in messages, such as "Kubernetes"
	// New returns the engine value for a cluster. It runs no command.
	New func(Cluster) Engine
	// APIPort is the port of the cluster's API in the facts (what modules read about the cluster) if the hive sets no port. If
	// APIPort is 0, the facts have no port.
	APIPort int
	// AccessFile is the name of a file in the state folder, to which a command such as nixbench kubeconfig writes the credentials
	// of the cluster's administrator. nixbench removes the file with the other secrets of the cluster.
	AccessFile string
	Head       string // the role of the node on which the user runs commands; empty if they run on this computer
	// UsageForm is a command with which the user can use the cluster, and its purpose. %[1]s stands for the first node of the role Head.
	UsageForm string
	// DrainOptions are the kinds of work that a drain deletes only if the user allows it.
	DrainOptions []DrainOption
	Help         Help
}

// Usage returns a command with which the user can use the cluster of these members, and its purpose, or an empty string if the cluster
// has no head. nixbench shows it when the cluster has been created.
func (k Kind) Usage(members []Member) string {
	head := Cluster{Members: members}.FirstOf(k.Head)
	switch {
	case k.Head == "":
		return k.UsageForm
	case head == "":
		return ""
	}
	return fmt.Sprintf(k.UsageForm, head)
}

// Help contains the paragraphs about an engine in the help of nixbench's commands. Each one begins with the
// engine's title, and has lines of at most 80 characters.
type Help struct {
	Check  string // in the help of nixbench check: what it checks, with and without --deep
	Drain  string // in the help of nixbench apply: what a drain waits for, and what it refuses to delete
	Remove string // in the help of nixbench destroy: what the removal of a member does
	Rotate string // in the help of nixbench secrets rotate: which of the engine's secrets are key rings
}

// KindsOf returns the kinds of engines that the nodes of the hive use, in the order of kinds.
func KindsOf(hive *nixeval.Hive, kinds []Kind) []Kind {
	members := MembersByKind(hive)
	var out []Kind
	for _, k := range kinds {
		if len(members[k.Name]) > 0 {
			out = append(out, k)
		}
	}
	return out
}
