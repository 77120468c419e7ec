package provision

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Provider is one hypervisor. All methods may be called again after they failed or
// were cut off: they find what is half done and finish it. They end, with an error, when
// their context does. They are called from many goroutines at once, for different nodes.
type Provider interface {
	// Survey tells what is there, and changes nothing.
	Survey(ctx context.Context, c Cluster, net Network) (Inventory, error)
	// Prepare makes the network with its reservations, and brings the images.
	// Reservations of ours that are not listed are given up.
	Prepare(ctx context.Context, c Cluster, g HostSetup) error
	// Ensure makes the machine as it is wished, and has it run. One that is there keeps its
	// disk; if its sizes differ it is shut down and started again. One that is detached from its
	// network is connected again: a virtual machine while it runs, a container by a restart.
	Ensure(ctx context.Context, c Cluster, net Network, s Spec) error
	// Remove ends the machine and removes all that belongs to it. One that is not there
	// is no error.
	Remove(ctx context.Context, c Cluster, node string) error
}

// Discoverer is a provider that can find out a machine's addresses: by the leases of
// the network, or by asking the guest's agent. None yet is no error.
type Discoverer interface {
	Addresses(ctx context.Context, c Cluster, node string) ([]netip.Addr, error)
}

// Console is a provider that keeps what machines print on their serial line.
type Console interface {
	// ConsoleTail gives the last lines, at most about max bytes.
	ConsoleTail(ctx context.Context, c Cluster, node string, max int) (string, error)
}

// Cleaner is a provider that has more than machines to remove: the networks and the images
// of this cluster. It removes only what is ours and unused, and returns what it leaves because
// something uses it.
type Cleaner interface {
	Clean(ctx context.Context, c Cluster) ([]Remaining, error)
}

// Left is something of a cluster that was not removed.
type Remaining struct {
	What string // `network demo`
	Why  string // `machine other is on it`
	Fix  string // what to do so that it can be removed
}

// Checker is a provider that can find out, before anything is made, that a machine could not be
// made as it is wished. The image in the spec need not have a hash yet, and is not looked at
// where it names no file.
type Checker interface {
	Check(ctx context.Context, c Cluster, net Network, s Spec) error
}

// Dissolver is a provider to which it makes a difference that all machines of a cluster are
// about to be removed, and [Cleaner] asked afterwards: what goes as a whole need not be taken
// apart for each. Where it does not come to that, addresses may be left that were reserved.
type ClusterRemover interface {
	BeginClusterRemoval(c Cluster)
}

// Doctor is a provider that can say what of its host is not as it should be.
type Doctor interface {
	Examine(ctx context.Context, net Network) []Finding
}

// Finding is one thing that was examined.
type Finding struct {
	What  string `json:"what"`            // `KVM`
	State string `json:"state"`           // `ok`, `warning` or `error`
	Text  string `json:"text"`            // what was seen
	Fix   string `json:"fix,omitempty"`   // what to do about it
	Where string `json:"where,omitempty"` // the hypervisor
}

// Error says what failed where. Its message is complete; Fix is a way out, if there is one.
type Error struct {
	Hypervisor string // name in the hive
	Node       string // or empty
	Op         string // `start`, `upload the image`
	Err        error
	Fix        string
}

func (e *Error) Error() string {
	var where []string
	if e.Node != "" {
		where = append(where, e.Node)
	}
	if e.Hypervisor != "" {
		where = append(where, "hypervisor "+e.Hypervisor)
	}
	return fmt.Sprintf("%s: %s: %v", strings.Join(where, ", "), e.Op, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Hint is shown below the message.
func (e *Error) Hint() string { return e.Fix }

// What an [Error] may be about, for errors.Is.
var (
	// ErrForeign: something with the name that we need is there and not ours.
	ErrForeign = errors.New("it is not ours")
	// ErrClash: the network's range is used by another network of the host.
	ErrClash = errors.New("the address range is taken")
	// ErrFull: the pool has no room.
	ErrFull = errors.New("no space left")
	// ErrGone: the hypervisor does not answer.
	ErrUnreachable = errors.New("the hypervisor does not answer")
	// ErrInUse: something uses it, so it cannot be removed.
	ErrInUse = errors.New("it is in use")
	// ErrImage: the image is not what it says.
	ErrImage = errors.New("the image is unusable")
)
