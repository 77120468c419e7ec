package deployments

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// tracer counts the processes and programs that the nodes and the operator's side start. It reads the kernel's process
// events, which need no tracing of single processes and cost them nothing.
type tracer struct {
	socket *os.File

	mu   sync.Mutex
	tree *processTree
	lost bool // the kernel has discarded events, since they were not read in time
}

// startTracer subscribes to process events. The nodes are the groups 0, 1, …; the last group is the operator's side. It
// fails where the kernel sends no events: in a process or network namespace, or without CONFIG_PROC_EVENTS.
func startTracer(nodes []node) (*tracer, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.NETLINK_CONNECTOR)
	if err != nil {
		return nil, fmt.Errorf("open a socket for process events: %w", err)
	}
	// Ten nodes create some thousand processes in a second.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("enlarge the buffer for process events: %w", err)
	}
	const connectorProc, listen = 1, 1 // CN_IDX_PROC and CN_VAL_PROC, PROC_CN_MCAST_LISTEN
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: connectorProc}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("subscribe to process events: %w", err)
	}
	message := binary.NativeEndian.AppendUint32(nil, 16+20+4) // struct nlmsghdr: length, type, flags, sequence, port
	message = binary.NativeEndian.AppendUint16(message, unix.NLMSG_DONE)
	message = binary.NativeEndian.AppendUint16(message, 0)
	message = append(message, make([]byte, 8)...)
	for _, word := range []uint32{connectorProc, connectorProc, 0, 0} { // struct cn_msg: id, sequence, acknowledgement
		message = binary.NativeEndian.AppendUint32(message, word)
	}
	message = binary.NativeEndian.AppendUint16(message, 4) // length of the data
	message = binary.NativeEndian.AppendUint16(message, 0)
	message = binary.NativeEndian.AppendUint32(message, listen)
	if _, err := unix.Write(fd, message); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("subscribe to process events: %w", err)
	}
	t := &tracer{socket: os.NewFile(uintptr(fd), "process events"), tree: newProcessTree(len(nodes) + 1)}
	for i, n := range nodes {
		pids, err := listProcesses(n.group)
		if err != nil {
			t.stop()
			return nil, err
		}
		for _, pid := range pids {
			t.tree.add(pid, i)
		}
	}
	go t.readEvents()
	if err := t.checkEvents(); err != nil {
		t.stop()
		return nil, err
	}
	return t, nil
}

func (t *tracer) stop() { t.socket.Close() }

func (t *tracer) readEvents() {
	buffer := make([]byte, 4096)
	for {
		n, err := t.socket.Read(buffer)
		t.mu.Lock()
		if errors.Is(err, unix.ENOBUFS) {
			t.lost = true
			err = nil
		} else if e, ok := parseEvent(buffer[:max(n, 0)]); ok && err == nil {
			t.tree.handle(e)
		}
		t.mu.Unlock()
		if err != nil {
			return // the socket is closed
		}
	}
}

// traceChildren makes processes that this process starts members of the operator's side, until end is called.
func (t *tracer) traceChildren() (end func()) {
	self := uint32(os.Getpid())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tree.add(self, len(t.tree.count)-1)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.tree.remove(self)
	}
}

// read returns the counts of all groups since the start. lost reports whether events are missing.
func (t *tracer) read() (counts []treeCount, lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tree.counts(), t.lost
}

// checkEvents checks that events arrive: it starts a program, which the operator's side must count.
func (t *tracer) checkEvents() error {
	end := t.traceChildren()
	defer end()
	if err := exec.Command("true").Run(); err != nil {
		return err
	}
	for begin := time.Now(); time.Since(begin) < 2*time.Second; time.Sleep(10 * time.Millisecond) {
		if counts, _ := t.read(); counts[len(counts)-1].programs > 0 {
			return nil
		}
	}
	return errors.New("the kernel sends no process events here: they need the initial process and network namespaces, and CONFIG_PROC_EVENTS")
}
