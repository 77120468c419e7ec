// Package libvirt is the provider for hypervisors that libvirt manages: QEMU virtual machines and Linux containers, on this or another
// host. This is the only package that needs cgo. With the build tag libvirt_dlopen, libvirt is loaded at run time instead of linked.
//
// Each operation is a function with a [session] as its argument. A session is one operation on one connection. The function observes the
// existing objects and creates the missing objects. Calls to libvirt cannot be interrupted, so an operation runs in its own goroutine and
// the caller may stop waiting for it; the operation checks its context before every change on the hypervisor. An operation that fails, for
// instance because libvirtd was restarted, is not repeated. All operations are idempotent, so the next run completes it.
package libvirt

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

type Hypervisor struct {
	name string
	o    provider.Hypervisor
	send event.Sink

	connectTimeout time.Duration // how long connecting may take; libvirt itself has no limit
	callTimeout    time.Duration // how long a call may take; in rare cases libvirt never answers

	dialing  sync.Mutex // held while a connection is opened; connecting may never end
	creating sync.Mutex // held while a container gets its root disk and starts

	mu   sync.Mutex // guards the fields below; never held during a request to libvirt
	conn *libvirt.Connect
	host host

	shutdownTimeout time.Duration           // how long a guest may take to shut down
	volumeTimeout   time.Duration           // how long the removal of a volume waits while the volume is being written
	onChange        func(what string) error // if set, called before each change on the hypervisor; tests interrupt operations with it
}

var _ provider.Provider = (*Hypervisor)(nil)

func Open(name string, o provider.Hypervisor, send event.Sink) (*Hypervisor, error) {
	h := &Hypervisor{
		name: name, o: o, send: send,
		connectTimeout: time.Minute, callTimeout: 2 * time.Minute, shutdownTimeout: time.Minute, volumeTimeout: 2 * time.Minute,
	}
	if err := checkURI(o.URI); err != nil {
		err = fmt.Errorf("cluster.hypervisors.%s.uri = %q: %w", name, o.URI, err)
		err = h.wrapError("", "connect", err, "use one such as qemu:///system or qemu+ssh://root@host/system")
		return nil, failure.WithKind(failure.Usage, err)
	}
	if o.Pool == "" || o.PoolPath == "" {
		return nil, h.wrapError("", "connect", errors.New("no storage pool is set"), "")
	}
	return h, nil
}

// These are the parts that the URI of a hypervisor may have. The URI comes from the hive. With other parts, the hive
// could run programs on this computer, for example with the transport ext and the parameter command.
var (
	drivers    = []string{"qemu", "lxc", "test"}
	transports = []string{"", "unix", "ssh", "libssh", "libssh2", "tcp", "tls"}
	parameters = []string{"socket", "mode", "proxy", "keyfile", "known_hosts", "known_hosts_verify", "sshauth", "no_tty", "no_verify", "no_sanity", "pkipath", "tls_priority"}
)

func checkURI(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return errors.New("it is not a libvirt URI")
	}
	driver, transport, _ := strings.Cut(u.Scheme, "+")
	switch {
	case driver == "qemu" && (u.Path == "/session" || u.Path == "/embed"):
		return errors.New("it has no networks and assigns no addresses; members of the group libvirt may use qemu:///system")
	case !slices.Contains(drivers, driver):
		return fmt.Errorf("the driver %s is not supported, only %s", driver, strings.Join(drivers, ", "))
	case !slices.Contains(transports, transport):
		return fmt.Errorf("the transport %s is not supported, only %s", transport, strings.Join(transports[1:], ", "))
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return err
	}
	for name := range query {
		if !slices.Contains(parameters, name) {
			return fmt.Errorf("the parameter %s is not supported, only %s", name, strings.Join(parameters, ", "))
		}
	}
	return nil
}
