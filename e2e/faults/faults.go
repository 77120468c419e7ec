package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// fault is a failure that is injected into a run.
type fault struct {
	name         string
	needsMachine bool // the fault is injected on the victim's machine, which must run
	// inject injects the fault into a run. It may wait until the object that it affects exists.
	inject action
	// heal removes the fault. It is nil if the fault ends by itself.
	heal action
	// lasts is the time after which the fault is healed; 0: it is healed when the run has ended.
	lasts time.Duration
	// exits has the exit codes that the run may end with; -1 if the fault kills the run.
	exits []int
	// names are words of which the error message must contain at least one. VICTIM stands for the name of the victim.
	names []string
	// ends is the time after the fault within which the run must end; 0: no limit.
	ends time.Duration
	// spares is the minimum age of the lab for the fault: the lab ends if libvirtd is killed earlier.
	spares time.Duration
}

// action injects or heals a fault of a run. victim is the node that the fault affects, if it is one of a node.
type action func(ctx context.Context, s *sandbox, run *process, victim string) error

// Exit codes (see docs/failures.md) that a fault may cause. They do not include the codes for mistakes in the command line or
// in the hive.
var (
	ofNodes      = []int{0, 5, 6, 7, 8, 9}
	ofHypervisor = []int{0, 5, 6, 8}
	ofOperator   = []int{0, 1, 4, 5, 7, 8}
)

const shortCut = 10 * time.Second

var faults = []fault{
	{name: "SIGKILL", inject: sendSignal(syscall.SIGKILL), exits: []int{0, -1}},
	{name: "SIGTERM", inject: sendSignal(syscall.SIGTERM), exits: []int{0, 130}, ends: 5 * time.Second},
	{name: "link cut for good", inject: link.cut, heal: link.restore, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "link cut for 10 s", inject: link.cut, heal: link.restore, lasts: shortCut, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "node cut for good", inject: cable.cut, heal: cable.restore, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "node cut for 10 s", inject: cable.cut, heal: cable.restore, lasts: shortCut, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "node powered off", needsMachine: true, inject: powerOff, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "node's disk full", needsMachine: true, inject: fillNode, heal: freeNode, exits: ofNodes, names: []string{"VICTIM"}},
	// The exit code 1 is documented for a state folder that cannot be written.
	{name: "operator's disk full", inject: fillState, heal: freeState, exits: ofOperator, names: []string{"no space left on device", "state folder"}},
	{name: "libvirtd killed", inject: signalLibvirtd("KILL"), spares: 2500 * time.Millisecond, exits: ofHypervisor, names: []string{"hypervisor", "libvirt", "VICTIM"}},
	{name: "libvirtd stopped for 5 s", inject: signalLibvirtd("STOP"), heal: signalLibvirtd("CONT"), lasts: 5 * time.Second, exits: ofHypervisor, names: []string{"hypervisor", "libvirt", "VICTIM"}},
}

func sendSignal(sig syscall.Signal) action {
	return func(_ context.Context, _ *sandbox, run *process, _ string) error {
		err := run.cmd.Process.Signal(sig)
		if errors.Is(err, os.ErrProcessDone) {
			return errMissed
		}
		return err
	}
}

// firewall is a set of rules that drop what a node sends and receives.
type firewall struct {
	argv  []string // the command that changes the rules
	add   string   // its option that adds a rule; -D deletes it
	of    func(nodeAddress) string
	rules [][]string // the chain of each rule, and the option before the address
}

var (
	// link drops all packets between the operator's computer and one node. Nodes still reach each other.
	link = firewall{[]string{"iptables", "-w"}, "-I", func(a nodeAddress) string { return a.address }, [][]string{{"INPUT", "-s"}, {"OUTPUT", "-d"}}}
	// cable drops all frames from and to one node, as if its cable was unplugged.
	cable = firewall{[]string{"ebtables", "--concurrent"}, "-A", func(a nodeAddress) string { return a.mac }, [][]string{{"INPUT", "-s"}, {"FORWARD", "-s"}, {"FORWARD", "-d"}, {"OUTPUT", "-d"}}}
)

func (f firewall) cut(ctx context.Context, s *sandbox, _ *process, victim string) error {
	return f.change(ctx, s, f.add, victim)
}

func (f firewall) restore(ctx context.Context, s *sandbox, _ *process, victim string) error {
	if err := f.change(ctx, s, "-D", victim); err != nil {
		return err
	}
	s.waitForNode(ctx, victim)
	return nil
}

// change adds or deletes the rules for a node, as soon as nixbench has recorded the node's addresses.
func (f firewall) change(ctx context.Context, s *sandbox, action, node string) error {
	if err := s.readAddresses(ctx, node); err != nil {
		return err
	}
	for _, rule := range f.rules {
		args := append(slices.Clone(f.argv[1:]), action, rule[0], rule[1], f.of(s.addresses[node]), "-j", "DROP")
		if err := s.command(s.lab.Command(context.WithoutCancel(ctx), f.argv[0], args...)); err != nil {
			return err
		}
	}
	return nil
}

func powerOff(ctx context.Context, s *sandbox, _ *process, victim string) error {
	return retry(ctx, func(ctx context.Context) error {
		_, err := s.virsh(ctx, "destroy", domain(victim))
		return err
	})
}

// fillNode fills the node's disk completely, from outside of the node.
func fillNode(ctx context.Context, s *sandbox, _ *process, victim string) error {
	return retry(ctx, func(ctx context.Context) error {
		return s.onDisk(ctx, victim, `mkdir -p "$root/fill"; n=0
			for size in 1G 100M 10M 1M 64K 4K; do
				while fallocate -l $size "$root/fill/$n" 2>/dev/null && [ $n -lt 500 ]; do n=$((n + 1)); done
			done
			! head -c 8192 /dev/zero 2>/dev/null > "$root/fill/last" || { rm -rf "$root/fill"; exit 1; }`)
	})
}

// freeNode removes the file that fillNode has written. It also succeeds if the node's machine no longer exists.
func freeNode(ctx context.Context, s *sandbox, _ *process, victim string) error {
	return retry(ctx, func(ctx context.Context) error {
		err := s.onDisk(ctx, victim, `rm -rf "$root/fill"`)
		if machines, listErr := s.virsh(ctx, "list", "--all", "--name"); listErr == nil && !slices.Contains(strings.Fields(machines), domain(victim)) {
			return nil
		}
		return err
	})
}

// fillState fills the file system of the state folder completely.
func fillState(_ context.Context, s *sandbox, _ *process, _ string) error {
	f, err := os.Create(s.filler())
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for size := len(block); size > 0; {
		if _, err := f.Write(block[:size]); err != nil {
			size /= 2 // a smaller block may still fit
		}
	}
	return nil
}

func freeState(_ context.Context, s *sandbox, _ *process, _ string) error {
	return os.RemoveAll(s.filler())
}

// signalLibvirtd sends a signal to libvirtd, which the lab starts again if it was killed. It does so inside of the lab's process namespace,
// because the process id in libvirtd's pid file is an id of this namespace.
func signalLibvirtd(signal string) action {
	return func(ctx context.Context, s *sandbox, _ *process, _ string) error {
		return s.command(s.lab.Inside(context.WithoutCancel(ctx), "bash", "-c", fmt.Sprintf(`kill -%s "$(cat /run/libvirt/libvirtd.pid)"`, signal)))
	}
}
