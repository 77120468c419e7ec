package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/e2e/lab"
)

// nodes reads the resource use of the lab's machines from the control groups of this host, so that measuring costs the machines nothing.
type nodes struct {
	groups []string // the control groups of the machines
	trace  *tracer  // nil if the kernel sends no process events
}

// counters are sums over all nodes. The values only grow.
type counters struct {
	cpu      float64 // processor seconds
	programs int     // number of started programs
}

// findNodes finds the control groups of the lab's machines: lxc-NUMBER-MACHINE.libvirt-lxc, below the group of the lab.
func findNodes(ctx context.Context, l *lab.Lab) (*nodes, error) {
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", l.PID))
	if err != nil {
		return nil, err
	}
	above := regexp.MustCompile("/nixbench-lab-[^/\n]+").FindString(string(own))
	if above == "" {
		return nil, errors.New("the lab's first process is in no control group nixbench-lab-…")
	}
	n := &nodes{}
	for _, m := range l.Machines {
		group := ""
		_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, _ fs.DirEntry, err error) error { // ignore errors: groups of other labs can disappear during the walk
			if err == nil && strings.HasSuffix(path, "-"+m.Name+".libvirt-lxc") && strings.Contains(path, above+"/") {
				if _, err := readUsage(path); err == nil {
					group = path
					return filepath.SkipAll
				}
			}
			return nil
		})
		if group == "" {
			return nil, fmt.Errorf("no control group of %s accounts processor time", m.Name)
		}
		n.groups = append(n.groups, group)
	}
	if n.trace, err = startTracer(ctx, n.groups); err != nil {
		fmt.Fprintln(os.Stderr, "note: programs are not counted:", err)
	}
	return n, nil
}

// readUsage returns the processor seconds that a control group has used. It supports cgroup v1 and v2.
func readUsage(group string) (float64, error) {
	if text, err := os.ReadFile(filepath.Join(group, "cpuacct.usage")); err == nil {
		nanoseconds, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		return nanoseconds / 1e9, err
	}
	text, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "usage_usec ")
	microseconds, err := strconv.ParseFloat(strings.SplitN(rest, "\n", 2)[0], 64)
	return microseconds / 1e6, err
}

func (n *nodes) readCPU() (total float64, err error) {
	for _, group := range n.groups {
		usage, err := readUsage(group)
		if err != nil {
			return 0, err
		}
		total += usage
	}
	return total, nil
}

// readQuiet waits until each node uses less than 0.5 % of a processor, and then reads the counters. It waits for at most 15 s, because
// systemd units and the journal of a node still work after the tool's connections have ended.
func (n *nodes) readQuiet(ctx context.Context) (c counters, err error) {
	const period = 600 * time.Millisecond
	for limit := time.Now().Add(15 * time.Second); ; {
		before, err := n.readCPU()
		if err != nil {
			return c, err
		}
		if !engine.Sleep(ctx, period) {
			return c, ctx.Err()
		}
		if c.cpu, err = n.readCPU(); err != nil {
			return c, err
		}
		quiet := c.cpu-before < 0.005*period.Seconds()*float64(len(n.groups))
		if quiet || time.Now().After(limit) {
			if !quiet {
				fmt.Fprintln(os.Stderr, "note: the nodes still worked 15 s after a run: its figures do not contain all of their work")
			}
			if n.trace != nil {
				c.programs = n.trace.read()
			}
			return c, nil
		}
	}
}

// tracer counts the programs that processes of the nodes start. It reads the kernel's process events. A process belongs to a node if its
// parent does.
type tracer struct {
	socket *os.File
	mu     sync.Mutex
	member map[uint32]bool // processes of the nodes
	count  int
	lost   bool // the kernel has discarded events
}

// startTracer subscribes to the kernel's process events, until ctx ends. The kernel must have CONFIG_PROC_EVENTS, and this process must be in the
// initial process and network namespaces.
func startTracer(ctx context.Context, groups []string) (*tracer, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.NETLINK_CONNECTOR)
	if err != nil {
		return nil, err
	}
	const connectorProc, listen = 1, 1 // CN_IDX_PROC and CN_VAL_PROC, PROC_CN_MCAST_LISTEN
	var message []byte
	for _, word := range []uint32{16 + 20 + 4, unix.NLMSG_DONE, 0, 0, connectorProc, connectorProc, 0, 0, 4, listen} { // struct nlmsghdr, struct cn_msg and its data
		message = binary.NativeEndian.AppendUint32(message, word)
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20), // ten nodes start some thousand processes in a second
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: connectorProc}))
	if err == nil {
		_, err = unix.Write(fd, message)
	}
	t := &tracer{socket: os.NewFile(uintptr(fd), "process events"), member: map[uint32]bool{}}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to process events: %w", err), t.socket.Close())
	}
	for _, group := range groups {
		_ = filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error { // ignore errors: a group that was removed has no processes
			if text, readErr := os.ReadFile(filepath.Join(path, "cgroup.procs")); err == nil && d.IsDir() && readErr == nil {
				for word := range strings.FieldsSeq(string(text)) {
					pid, _ := strconv.ParseUint(word, 10, 32) // the kernel writes numbers
					t.member[uint32(pid)] = true
				}
			}
			return nil
		})
	}
	go t.readEvents()
	context.AfterFunc(ctx, func() { t.socket.Close() })
	return t, nil
}

// readEvents reads process events from the socket until the socket is closed.
func (t *tracer) readEvents() {
	buffer := make([]byte, 4096)
	for {
		n, err := t.socket.Read(buffer)
		t.mu.Lock()
		if errors.Is(err, unix.ENOBUFS) {
			t.lost, err = true, nil
		} else if err == nil {
			t.handle(buffer[:n])
		}
		t.mu.Unlock()
		if err != nil {
			return // the socket is closed
		}
	}
}

// handle evaluates a process event. b has a netlink header, a connector header, and struct proc_event of linux/cn_proc.h.
func (t *tracer) handle(b []byte) {
	const headers, ids = 16 + 20, 16 + 20 + 16
	const fork, exec, exit = 0x1, 0x2, 0x80000000
	if len(b) < ids+16 {
		return
	}
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	switch word(headers) {
	case fork: // a fork of a process, not of a thread; the kernel can use the id of an ended process again
		if parent, pid, child := word(ids+4), word(ids+8), word(ids+12); pid == child {
			t.member[child] = t.member[parent]
		}
	case exec:
		if t.member[word(ids+4)] {
			t.count++
		}
	case exit:
		if pid, process := word(ids), word(ids+4); pid == process {
			delete(t.member, pid)
		}
	}
}

// read returns the number of programs since the start.
func (t *tracer) read() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost {
		fmt.Fprintln(os.Stderr, "note: the kernel has discarded process events: the number of programs is too small")
		t.lost = false
	}
	return t.count
}
