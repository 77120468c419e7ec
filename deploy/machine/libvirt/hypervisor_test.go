package libvirt

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/provider"
)

func TestOpenRefuses(t *testing.T) {
	for uri, why := range map[string]string{
		"qemu:///session": "no networks", "qemu:///embed?root=/x": "no networks", "nonsense": "not a libvirt URI", "": "not a libvirt URI",
	} {
		_, err := Open("default", provider.Hypervisor{URI: uri, Pool: "p", PoolPath: "/p"}, nil)
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "default") {
			t.Errorf("%s: %v", uri, err)
		}
	}
	for uri, why := range map[string]string{ // libvirt would run a program
		"qemu+ext:///system?command=/x": "transport ext", "QEMU+EXT:///?command=/x": "transport ext", "qemu+ssh://h/system?command=/x": "parameter command",
		"qemu+ssh://h/system?no_tty=1&Command=/x": "parameter Command", "qemu+ssh://h/system?c%6fmmand=/x": "parameter command", "qemu+ssh://h/system?no_tty=1;command=/x": "semicolon",
		"qemu+unix:///system?name=qemu%2bext:///": "parameter name", "qemu+ssh://h/system?netcat=/x": "parameter netcat", "xen:///": "driver xen",
	} {
		_, err := Open("rack1", provider.Hypervisor{URI: uri, Pool: "p", PoolPath: "/p"}, nil)
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "cluster.hypervisors.rack1.uri") || failure.KindOf(err) != failure.Usage {
			t.Errorf("%s: %v", uri, err)
		}
	}
	for _, uri := range []string{
		"qemu:///system", "lxc:///system", "qemu+ssh://root@host/system", "qemu+unix:///system?socket=/x", "lxc+unix:///system?socket=/x",
	} {
		if _, err := Open("default", provider.Hypervisor{URI: uri, Pool: "p", PoolPath: "/p"}, nil); err != nil {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	h, err := Open("far", provider.Hypervisor{URI: "qemu+unix:///system?socket=" + filepath.Join(t.TempDir(), "none"), Pool: "p", PoolPath: "/p"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err = h.Survey(t.Context(), provider.Cluster{ID: "0011223344556677"}, provider.Network{})
	var e *provider.Error
	if !errors.Is(err, provider.ErrUnreachable) || !errors.As(err, &e) || e.Hypervisor != "far" || !strings.Contains(e.Fix, "libvirtd") {
		t.Errorf("err = %v", err)
	}
	for _, install := range []string{"libvirt-daemon-system", "qemu-system-x86", "virtualisation.libvirtd.enable"} {
		if !strings.Contains(e.Fix, install) {
			t.Errorf("the hint does not contain %s: %s", install, e.Fix)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	found := h.Examine(t.Context())
	if len(found) != 1 || found[0].State != "error" || found[0].Fix == "" || found[0].Where != "far" {
		t.Errorf("findings %+v", found)
	}
}

// hangingSocket returns the URI of a socket that accepts connections and never answers, like a libvirtd that hangs.
func hangingSocket(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "qemu+unix:///system?socket=" + file
}

// A hypervisor that accepts the connection and never answers is given up after a timeout, or at once when
// the caller's context ends. Close does not block on it.
func TestConnectTimeout(t *testing.T) {
	h, err := Open("far", provider.Hypervisor{URI: hangingSocket(t), Pool: "p", PoolPath: "/p"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.connectTimeout = 200 * time.Millisecond
	look := func(ctx context.Context) error {
		over := make(chan error, 1)
		go func() {
			_, err := h.Survey(ctx, provider.Cluster{ID: "0011223344556677"}, provider.Network{})
			over <- errors.Join(err, h.Close())
		}()
		select {
		case err := <-over:
			return err
		case <-time.After(10 * time.Second):
			t.Fatal("it is waited for without an end")
			return nil
		}
	}
	var e *provider.Error
	if err := look(t.Context()); !errors.Is(err, provider.ErrUnreachable) || !errors.As(err, &e) || e.Fix == "" {
		t.Errorf("err = %v", err)
	}
	h.connectTimeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := look(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
}

// Close during an abandoned operation does not free the connection that the operation uses.
func TestCloseDuringOperation(t *testing.T) {
	h, err := Open("test", provider.Hypervisor{URI: testURI(t), Pool: "p", PoolPath: "/p"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	closed, over := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_ = h.runOperation(ctx, func(s *session) error {
		cancel() // only after the operation has begun
		<-closed
		alive, err := s.conn.IsAlive()
		if err == nil && !alive {
			err = errors.New("the connection is gone")
		}
		over <- err
		return nil
	})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	close(closed)
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// A call to libvirt that hangs does not block the caller.
func TestHangingCallIsAbandoned(t *testing.T) {
	h, err := Open("test", provider.Hypervisor{URI: testURI(t), Pool: "p", PoolPath: "/p"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	defer close(over)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	err = h.runOperation(ctx, func(*session) error { <-over; return nil })
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second {
		t.Errorf("err = %v after %s", err, took)
	}
}

// A call that is never answered is an error, and the next operation opens a new connection. An abandoned operation that gets its answer
// later makes no more changes.
func TestCallWithoutAnswer(t *testing.T) {
	h, err := Open("test", provider.Hypervisor{URI: testURI(t), Pool: "p", PoolPath: "/p"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	h.callTimeout = 300 * time.Millisecond
	answer, late := make(chan struct{}), make(chan error, 1)
	begun := make(chan *libvirt.Connect, 1)
	err = h.runOperation(t.Context(), func(s *session) error {
		begun <- s.conn
		<-answer
		late <- s.beforeChange("do something")
		return nil
	})
	var e *provider.Error
	if !errors.Is(err, errNoAnswer) || !errors.As(err, &e) || e.Fix == "" {
		t.Errorf("err = %v", err)
	}
	hung := <-begun
	if err := h.runOperation(t.Context(), func(s *session) error {
		if s.conn == hung {
			t.Error("it is the same connection")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	close(answer)
	if err := <-late; !errors.Is(err, context.Canceled) {
		t.Errorf("it goes on: %v", err)
	}
	// A slow operation is not aborted.
	if err := h.runOperation(t.Context(), func(s *session) error {
		for range 6 {
			if err := s.sleep(100 * time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestExamine(t *testing.T) {
	h, err := Open("test", provider.Hypervisor{URI: testURI(t), Pool: "nixbench", PoolPath: filepath.Join(t.TempDir(), "pool")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	states := map[string]string{}
	for _, f := range h.Examine(t.Context()) {
		states[f.What] = f.State
		if f.State != "ok" && f.Fix == "" || f.Text == "" || f.Where != "test" {
			t.Errorf("%+v", f)
		}
	}
	if len(states) != 3 || states["libvirt"] != "ok" || states["storage pool"] != "ok" {
		t.Errorf("%v", states)
	}
	if f := examineIsolation(host{kind: provider.Container}); f.State != "warning" || f.Fix == "" {
		t.Errorf("containers: %+v", f)
	}
}

// Operations that find the desired state change nothing, and a change of the memory keeps the identity and the
// disks.
func TestEffects(t *testing.T) {
	h, c, g := preparedForTest(t)
	h.shutdownTimeout = time.Second
	var changes []string
	h.onChange = func(what string) error { changes = append(changes, what); return nil }
	s := provider.Spec{Node: "n1", Role: "w", MAC: "52:54:00:aa:00:01", VCPUs: 1, Memory: 64 << 20, Disks: []uint64{1 << 20}, Image: g.Images[0], NewDisks: true,
		Identity: provider.Identity{HostKey: []byte("key")}}
	prepare := func() error { return h.Prepare(t.Context(), c, g) }
	ensure := func() error { return h.Ensure(t.Context(), c, g.Network, s) }
	for _, test := range []struct {
		name string
		run  func() error
		want []string // nil: any
	}{
		{"Prepare again", prepare, []string{}},
		{"Ensure", ensure, nil},
		{"Ensure again", ensure, []string{}},
		{"Ensure with more memory", func() error { s.Memory *= 2; return ensure() }, []string{"shut the domain down", "define the domain", "start the domain"}},
	} {
		changes = []string{}
		if err := test.run(); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if test.want != nil && !slices.Equal(changes, test.want) {
			t.Errorf("%s: changes %q, want %q", test.name, changes, test.want)
		}
	}
}

// preparedForTest returns a hypervisor of libvirt's test driver on which a network and an image are prepared.
func preparedForTest(t *testing.T) (*Hypervisor, provider.Cluster, provider.HostSetup) {
	t.Helper()
	h, err := Open("test", provider.Hypervisor{URI: testURI(t), Pool: "nixbench", PoolPath: filepath.Join(t.TempDir(), "pool")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	c := provider.Cluster{Name: "c", ID: "0011223344556677"}
	g := provider.HostSetup{
		Network: provider.Network{Name: "n", Mode: provider.NAT, CIDR: netip.MustParsePrefix("192.168.240.0/24")},
		Images:  []provider.Image{{Hash: "1111111111111111", Disk: "/nowhere", Format: provider.QCOW2}},
	}
	if err := h.Prepare(t.Context(), c, g); err != nil {
		t.Fatal(err)
	}
	return h, c, g
}

// Volumes with a private key or the machine's data are readable only by their owner.
func TestVolumeModes(t *testing.T) {
	h, c, g := preparedForTest(t)
	for _, node := range []string{"n1", "n2"} {
		if err := h.Ensure(t.Context(), c, g.Network, provider.Spec{Node: node, MAC: provider.MAC("c", node), VCPUs: 1, Memory: 64 << 20, Disks: []uint64{1 << 20}, Image: g.Images[0], NewDisks: true,
			Identity: provider.Identity{HostKey: []byte("key")}}); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	if err := h.runOperation(t.Context(), func(s *session) error {
		p, err := s.findPool()
		if err != nil {
			return err
		}
		volumes, err := p.p.ListAllStorageVolumes(0)
		for i := range volumes {
			text, err := volumes[i].GetXMLDesc(0)
			if err != nil {
				return err
			}
			if strings.Contains(text, "<name>nixbench.") {
				seen++
				if !strings.Contains(text, "<mode>0600</mode>") {
					t.Errorf("other users can read %s", text)
				}
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if seen != 6 {
		t.Errorf("%d volumes of machines, want 6", seen)
	}
}

// Clean keeps a pool that nixbench did not create, although it is empty.
func TestForeignPoolIsKept(t *testing.T) {
	folder := t.TempDir()
	h, err := Open("test", provider.Hypervisor{URI: testURI(t), Pool: "theirs", PoolPath: folder}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.runOperation(t.Context(), func(s *session) error {
		theirs, err := s.conn.StoragePoolDefineXML("<pool type='dir'><name>theirs</name><target><path>"+folder+"</path></target></pool>", 0)
		if err != nil {
			return err
		}
		_ = theirs.Free()
		if _, err := s.ensurePool(); err != nil {
			return err
		}
		if err := s.cleanPool(provider.Cluster{ID: "0011223344556677"}, true); err != nil {
			return err
		}
		p, err := s.findPool()
		if err == nil && p == nil {
			t.Error("the pool was removed or stopped")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestNeighbours(t *testing.T) {
	const table = `IP address       HW type     Flags       HW address            Mask     Device
192.168.78.187   0x1         0x2         52:54:5b:92:d9:d0     *        br0
192.168.78.188   0x1         0x0         52:54:5b:92:d9:d0     *        br0
192.168.78.2     0x1         0x2         52:54:00:00:00:01     *        br0
`
	got := findNeighbours(table, "52:54:5B:92:D9:D0")
	if len(got) != 1 || got[0] != netip.MustParseAddr("192.168.78.187") {
		t.Errorf("got %v", got)
	}
}

// If a guest cannot be asked to shut down, the wait ends soon. If it can, the wait lasts until the time limit.
func TestAskUntilOff(t *testing.T) {
	refuse := func() error { return libvirt.Error{Message: "no monitor"} }
	accept := func() error { return nil }
	on := func() (bool, error) { return true, nil }
	s := &session{h: &Hypervisor{}, ctx: t.Context()}
	if err := s.askUntilOff(refuse, on, time.Hour); !errors.Is(err, provider.ErrRefused) || !strings.HasSuffix(err.Error(), ": no monitor") {
		t.Errorf("refused: %v", err)
	}
	if err := s.askUntilOff(accept, on, 300*time.Millisecond); err != nil {
		t.Errorf("accepted: %v", err)
	}
	if err := s.askUntilOff(refuse, func() (bool, error) { return false, nil }, time.Hour); err != nil {
		t.Errorf("off: %v", err)
	}
}
