package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// fault is a failure that is injected into a run.
type fault struct {
	name         string
	needsMachine bool // the fault is injected on the victim's machine, which must run
	inject       action
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

// action injects a fault into a run. It may wait until the object that it affects exists. victim is the node that the fault affects, if it is
// one of a node. heal removes the fault; it is nil if the fault ends by itself.
type action func(ctx context.Context, s *sandbox, run *process, victim string) (heal healer, err error)

type healer func(context.Context) error

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
	{name: "link cut for good", inject: link, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "link cut for 10 s", inject: link, lasts: shortCut, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "node cut for good", inject: cable, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "node cut for 10 s", inject: cable, lasts: shortCut, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "node powered off", needsMachine: true, inject: powerOff, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "node's disk full", needsMachine: true, inject: fillNode, exits: ofNodes, names: []string{"VICTIM"}},
	// The exit code 1 is documented for a state folder that cannot be written.
	{name: "operator's disk full", inject: fillState, exits: ofOperator, names: []string{"no space left on device", "state folder"}},
	{name: "libvirtd killed", inject: killLibvirtd, spares: 2500 * time.Millisecond, exits: ofHypervisor, names: []string{"hypervisor", "libvirt", "VICTIM"}},
	{name: "libvirtd stopped for 5 s", inject: stopLibvirtd, lasts: 5 * time.Second, exits: ofHypervisor, names: []string{"hypervisor", "libvirt", "VICTIM"}},
}

func sendSignal(sig syscall.Signal) action {
	return func(_ context.Context, _ *sandbox, run *process, _ string) (healer, error) {
		err := run.cmd.Process.Signal(sig)
		if errors.Is(err, os.ErrProcessDone) {
			return nil, errMissed
		}
		return nil, err
	}
}

var (
	// link drops all packets between the operator's computer and one node. Nodes still reach each other.
	link = cut("iptables -w", "-I", func(m recordedMachine) string { return m.Address }, "INPUT -s", "OUTPUT -d")
	// cable drops all frames from and to one node, as if its cable was unplugged.
	cable = cut("ebtables --concurrent", "-A", func(m recordedMachine) string { return m.MAC }, "INPUT -s", "FORWARD -s", "FORWARD -d", "OUTPUT -d")
)

// cut returns an action that drops what a node sends and receives, as soon as nixbench has recorded the node's addresses. add is the option
// of the firewall's command that adds a rule; -D deletes it. A rule has its chain, and the option before the address.
func cut(command, add string, address func(recordedMachine) string, rules ...string) action {
	return func(ctx context.Context, s *sandbox, _ *process, victim string) (healer, error) {
		m, err := s.waitForRecord(ctx, victim)
		if err != nil {
			return nil, err
		}
		change := func(ctx context.Context, option string) error {
			for _, rule := range rules {
				argv := strings.Fields(command + " " + option + " " + rule + " " + address(m) + " -j DROP")
				if err := s.command(s.lab.Command(context.WithoutCancel(ctx), argv[0], argv[1:]...)); err != nil {
					return err
				}
			}
			return nil
		}
		return func(ctx context.Context) error {
			err := change(ctx, "-D")
			if err == nil {
				s.waitForNode(ctx, victim, m.Address)
			}
			return err
		}, change(ctx, add)
	}
}

func powerOff(ctx context.Context, s *sandbox, _ *process, victim string) (healer, error) {
	return nil, retry(ctx, func(ctx context.Context) error {
		_, err := s.virsh(ctx, "destroy", domain(victim))
		return err
	})
}

// fillNode fills the node's disk completely, from outside of the node. Healing also succeeds if the node's machine no longer exists.
func fillNode(ctx context.Context, s *sandbox, _ *process, victim string) (healer, error) {
	free := func(ctx context.Context) error {
		return retry(ctx, func(ctx context.Context) error {
			err := s.onDisk(ctx, victim, `rm -rf "$root/fill"`)
			if machines, listErr := s.virsh(ctx, "list", "--all", "--name"); listErr == nil && !slices.Contains(strings.Fields(machines), domain(victim)) {
				return nil
			}
			return err
		})
	}
	return free, retry(ctx, func(ctx context.Context) error {
		return s.onDisk(ctx, victim, `mkdir -p "$root/fill"; n=0
			for size in 1G 100M 10M 1M 64K 4K; do
				while fallocate -l $size "$root/fill/$n" 2>/dev/null && [ $n -lt 500 ]; do n=$((n + 1)); done
			done
			! head -c 8192 /dev/zero 2>/dev/null > "$root/fill/last" || { rm -rf "$root/fill"; exit 1; }`)
	})
}

// fillState fills the file system of the state folder completely.
func fillState(_ context.Context, s *sandbox, _ *process, _ string) (healer, error) {
	filler := filepath.Join(s.stateRoot(), "filler")
	err := os.WriteFile(filler, make([]byte, stateSize+1), 0o600)
	if errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	return func(context.Context) error { return os.RemoveAll(filler) }, err
}

// killLibvirtd kills libvirtd, which the lab then starts again.
func killLibvirtd(ctx context.Context, s *sandbox, _ *process, _ string) (healer, error) {
	return nil, s.signalLibvirtd(ctx, "KILL")
}

func stopLibvirtd(ctx context.Context, s *sandbox, _ *process, _ string) (healer, error) {
	return func(ctx context.Context) error { return s.signalLibvirtd(ctx, "CONT") }, s.signalLibvirtd(ctx, "STOP")
}

// signalLibvirtd sends a signal to libvirtd inside of the lab's process namespace, because the process id in libvirtd's pid file is an id of
// this namespace.
func (s *sandbox) signalLibvirtd(ctx context.Context, signal string) error {
	return s.command(s.lab.Inside(context.WithoutCancel(ctx), "bash", "-c", fmt.Sprintf(`kill -%s "$(cat /run/libvirt/libvirtd.pid)"`, signal)))
}
