package libvirt

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

type Hypervisor struct {
	connection

	// shutdownTimeout is how long a guest may take to shut down.
	shutdownTimeout time.Duration
	// volumeTimeout is how long the removal of a volume waits while the volume is being written.
	volumeTimeout time.Duration
	// onChange, if set, is called before each change on the hypervisor. Tests set it to interrupt operations.
	onChange func(what string) error

	storage sync.Mutex // held while the pool or a network is created or removed
}

var _ provider.Provider = (*Hypervisor)(nil)

// Open validates the options and returns the hypervisor. The first operation opens the connection.
func Open(name string, o provider.Hypervisor, send event.Sink) (*Hypervisor, error) {
	h := &Hypervisor{
		connection: connection{name: name, o: o, send: send, connectTimeout: time.Minute, callTimeout: 2 * time.Minute}, shutdownTimeout: time.Minute,
		volumeTimeout: 2 * time.Minute,
	}
	u, err := url.Parse(o.URI)
	if err != nil || u.Scheme == "" {
		return nil, h.wrapError("", "connect", fmt.Errorf("%q is not a libvirt URI", o.URI), "use one such as qemu:///system or lxc:///system")
	}
	if strings.HasPrefix(u.Scheme, "qemu") && (u.Path == "/session" || u.Path == "/embed") {
		return nil, h.wrapError("", "connect", fmt.Errorf("%s has no networks and assigns no addresses", o.URI),
			"use qemu:///system, which members of the group libvirt may use")
	}
	if err := checkURI(u); err != nil {
		return nil, failure.WithKind(failure.Usage, h.wrapError("", "connect", fmt.Errorf("cluster.hypervisors.%s.uri = %q: %w", name, o.URI, err), "use one such as qemu:///system or qemu+ssh://root@host/system"))
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

func checkURI(u *url.URL) error {
	driver, transport, _ := strings.Cut(u.Scheme, "+")
	switch {
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
