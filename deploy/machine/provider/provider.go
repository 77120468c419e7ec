// Package provider is the interface to the programs that run machines, such as libvirt: it defines the desired state of one machine
// ([Spec]), its observed state ([Actual]), and what observes and changes one hypervisor ([Provider]). The contract suite that all
// providers pass is in the tests of the package libvirt (suite_test.go).
//
// Only objects that carry nixbench's mark with the cluster's id are changed or removed.
package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/nixbench/nixbench/deploy/failure"
)

// Provider manages the machines of one hypervisor. All methods are idempotent: a method that failed or was interrupted may be called again,
// and completes the operation. Methods return with an error when their context ends. They may be called concurrently for different nodes.
type Provider interface {
	io.Closer // closes the connection to the hypervisor
	// Survey returns the observed state of the hypervisor. It changes nothing.
	Survey(ctx context.Context, c Cluster, net Network) (Inventory, error)
	// Prepare creates the network with its reservations and uploads the images. It removes reservations of
	// this cluster that g does not contain.
	Prepare(ctx context.Context, c Cluster, g HostSetup) error
	// Ensure creates the machine, or changes it to its desired state, and starts it. An existing machine keeps its disk. If the
	// definition of the machine differs from s, the machine is shut down and started again. Unless s.NewDisks is set, the disks of the machine must
	// exist. If only the domain is missing, it is defined again with the existing disks.
	Ensure(ctx context.Context, c Cluster, net Network, s Spec) error
	// Remove stops the machine and removes its domain, disks and identity. Its reservation remains until the next Prepare, or until
	// the network is removed. A missing machine is no error.
	Remove(ctx context.Context, c Cluster, node string) error
	// Addresses returns the addresses of a machine, from the network's leases or from the guest agent. It returns an empty list and no
	// error while no address is known.
	Addresses(ctx context.Context, c Cluster, node string) ([]netip.Addr, error)
	// Clean removes the unused images of this cluster. If last is set, because no machine of the cluster is left on any hypervisor, it also
	// removes the networks, and a network or an image that is in use is an error, ErrInUse.
	Clean(ctx context.Context, c Cluster, last bool) error
	// ConsoleTail returns the end of the console log, at most about max bytes.
	ConsoleTail(ctx context.Context, c Cluster, node string, max int) (string, error)
	// AttachConsole connects to the console of a running machine: it copies the output of the console to out, and the
	// data from the channel in to the console. It returns nil when the machine has closed its console, or when in is
	// closed. It returns an error when the context ends.
	AttachConsole(ctx context.Context, c Cluster, node string, in <-chan []byte, out io.Writer) error
	// States returns the states of the machines of nodes. Machines that do not exist are left out. A call is so cheap that it can be
	// repeated each second, also during a measurement.
	States(ctx context.Context, c Cluster, nodes []string) (map[string]State, error)
	// ShutDown asks the system of the machine to shut down, and waits until the machine is off or the context ends. If
	// force is set, it stops the machine at once, as a power failure does. A machine that is off or missing is no error. If the
	// hypervisor refuses to ask the system, the error is ErrRefused.
	ShutDown(ctx context.Context, c Cluster, node string, force bool) error
	// Start starts a machine that is off or crashed, and resumes one that is paused. It does not wait until the system of
	// the machine has booted. A missing machine is an error.
	Start(ctx context.Context, c Cluster, node string) error
	// Check validates the spec of a machine. The image in the spec needs no hash. If the image has no file, Check does not check the image.
	Check(ctx context.Context, c Cluster, net Network, s Spec) error
	Examine(ctx context.Context) []Finding
}

// States of a Finding.
const (
	FindingOK      = "ok"
	FindingWarning = "warning"
	FindingError   = "error"
)

type Finding struct {
	What  string `json:"what"`            // `KVM`
	State string `json:"state"`           // FindingOK, FindingWarning or FindingError
	Text  string `json:"text"`            // what was observed
	Fix   string `json:"fix,omitempty"`   // how to fix the problem
	Where string `json:"where,omitempty"` // the hypervisor
	Err   error  `json:"-"`               // the error that Text describes, if there is one
}

func NewErrorFinding(what string, err error) Finding {
	return Finding{What: what, State: FindingError, Text: err.Error(), Fix: failure.Hint(err), Err: err}
}

// Error is a failed operation on a hypervisor. Its message contains all fields except Fix. Fix says what the user
// should do; it may be empty.
type Error struct {
	Hypervisor string // name in the hive
	Node       string // empty: the error is not about one node
	Op         string // `start`, `upload the image`
	Err        error
	Fix        string
}

func (e *Error) Error() string {
	node, text := e.OnNode()
	switch {
	case node == "":
		return text
	case e.Hypervisor != "":
		return node + ", " + text
	}
	return node + ": " + text
}

func (e *Error) OnNode() (node, text string) {
	text = fmt.Sprintf("%s: %v", e.Op, e.Err)
	if e.Hypervisor != "" {
		text = "hypervisor " + e.Hypervisor + ": " + text
	}
	return e.Node, text
}

func (e *Error) Kind() failure.Kind { return failure.Provision }

func (e *Error) Unwrap() error { return e.Err }

func (e *Error) Hint() string { return e.Fix }

// NewInUseError returns the error for an object of a cluster that Clean cannot remove. fix says what the user has to do first.
func NewInUseError(hypervisor, what, why, fix string) error {
	return &Error{
		Hypervisor: hypervisor, Op: "remove " + what, Err: fmt.Errorf("%w: %s", ErrInUse, why),
		Fix: fix + ", then run nixbench destroy again; nixbench apply would use the remaining objects",
	}
}

// Causes of an [Error], for errors.Is.
var (
	ErrForeign     = errors.New("it does not belong to this cluster")
	ErrClash       = errors.New("the address range is taken")
	ErrFull        = errors.New("no space left")
	ErrUnreachable = errors.New("the hypervisor does not answer")
	ErrInUse       = errors.New("it is in use")
	// ErrNoDisk: a disk of the machine is missing, so its data may be lost.
	ErrNoDisk  = errors.New("its disk is missing")
	ErrRefused = errors.New("the hypervisor refuses to ask its system")
	ErrImage   = errors.New("the image is unusable")
)
