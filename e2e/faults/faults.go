package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// fault is something that goes wrong during a run.
type fault struct {
	name         string
	needsMachine bool // it happens on the victim's machine
	// inject makes it happen to a run. It may wait until there is something to hit.
	inject func(ctx context.Context, s *site, run *process, victim string) error
	// heal ends it; nil where it ends by itself.
	heal func(ctx context.Context, s *site, victim string) error
	// lasts is when it is healed; 0: when the run has ended.
	lasts time.Duration
	// exits has the exit codes that the run may end with; nil where it ends by the fault.
	exits []int
	// names are words of which an error message must have one. VICTIM stands for the node.
	names []string
	// ends is how soon after it the run must be over; 0: there is no such limit.
	ends time.Duration
	// libvirtd is not to be killed before the lab takes that for an accident.
	spares time.Duration
}

// Exit codes of docs/exit-codes.md that a fault may lead to. A fault is never a mistake in the
// command line or in the hive.
var (
	ofNodes      = []int{0, 5, 6, 7, 8, 9}
	ofHypervisor = []int{0, 5, 6, 8}
	ofOperator   = []int{0, 1, 4, 5, 7, 8}
)

const shortCut = 10 * time.Second

var faults = []fault{
	{name: "SIGKILL", inject: sendSignal(syscall.SIGKILL)},
	{name: "SIGTERM", inject: sendSignal(syscall.SIGTERM), exits: []int{0, 130}, ends: 5 * time.Second},
	{name: "link cut for good", inject: cutLink, heal: mendLink, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "link cut for 10 s", inject: cutLink, heal: mendLink, lasts: shortCut, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "node cut for good", inject: cutNode, heal: mendNode, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "node cut for 10 s", inject: cutNode, heal: mendNode, lasts: shortCut, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "node powered off", needsMachine: true, inject: powerOff, exits: ofNodes, names: []string{"VICTIM"}},
	{name: "node's disk full", needsMachine: true, inject: fillNode, heal: freeNode, exits: ofNodes, names: []string{"VICTIM"}},
	// 1 is documented for a folder that cannot be written.
	{name: "operator's disk full", inject: fillState, heal: freeState, exits: ofOperator, names: []string{"no space left on device", "state folder"}},
	{name: "libvirtd killed", inject: killLibvirtd, spares: 2500 * time.Millisecond, exits: ofHypervisor, names: []string{"hypervisor", "libvirt", "VICTIM"}},
	{name: "libvirtd stopped for 5 s", inject: stopLibvirtd, heal: continueLibvirtd, lasts: 5 * time.Second, exits: ofHypervisor, names: []string{"hypervisor", "libvirt", "VICTIM"}},
}

func sendSignal(sig syscall.Signal) func(context.Context, *site, *process, string) error {
	return func(_ context.Context, _ *site, run *process, _ string) error {
		err := run.cmd.Process.Signal(sig)
		if errors.Is(err, os.ErrProcessDone) {
			return errMissed
		}
		return err
	}
}

// cutLink cuts the operator off from one node; nodes still reach each other.
func cutLink(ctx context.Context, s *site, _ *process, victim string) error {
	return s.eachRule(ctx, victim, "-I")
}

func mendLink(ctx context.Context, s *site, victim string) error {
	if err := s.eachRule(ctx, victim, "-D"); err != nil {
		return err
	}
	s.awaitNode(ctx, victim)
	return nil
}

// cutNode cuts one node off from everything, as if its cable was pulled.
func cutNode(ctx context.Context, s *site, _ *process, victim string) error {
	return s.eachFrame(ctx, victim, "-A")
}

func mendNode(ctx context.Context, s *site, victim string) error {
	if err := s.eachFrame(ctx, victim, "-D"); err != nil {
		return err
	}
	s.awaitNode(ctx, victim)
	return nil
}

func powerOff(ctx context.Context, s *site, _ *process, victim string) error {
	return s.retry(ctx, func(ctx context.Context) error {
		return s.command(s.lab.Command(ctx, "virsh", "-q", "-c", s.lab.URI("lxc"), "destroy", s.domain(victim)))
	})
}

// fillNode leaves not one block of the node's disk, from outside of the node.
func fillNode(ctx context.Context, s *site, _ *process, victim string) error {
	return s.retry(ctx, func(ctx context.Context) error {
		return s.onDisk(ctx, victim, `mkdir -p "$root/fill"; n=0
			for size in 1G 100M 10M 1M 64K 4K; do
				while fallocate -l $size "$root/fill/$n" 2>/dev/null && [ $n -lt 500 ]; do n=$((n + 1)); done
			done
			! head -c 8192 /dev/zero 2>/dev/null > "$root/fill/last" || { rm -rf "$root/fill"; exit 1; }`)
	})
}

// freeNode gives the node its room back. A machine that was removed meanwhile has no disk any more.
func freeNode(ctx context.Context, s *site, victim string) error {
	return s.retry(ctx, func(ctx context.Context) error {
		err := s.onDisk(ctx, victim, `rm -rf "$root/fill"`)
		if err != nil && s.isGone(ctx, victim) {
			return nil
		}
		return err
	})
}

func fillState(_ context.Context, s *site, _ *process, _ string) error { return s.fillState() }

func freeState(_ context.Context, s *site, _ string) error { return s.freeState() }

// killLibvirtd kills it; the lab starts it again.
func killLibvirtd(ctx context.Context, s *site, _ *process, _ string) error {
	return s.signalLibvirtd(ctx, "KILL")
}

func stopLibvirtd(ctx context.Context, s *site, _ *process, _ string) error {
	return s.signalLibvirtd(ctx, "STOP")
}

func continueLibvirtd(ctx context.Context, s *site, _ string) error {
	return s.signalLibvirtd(ctx, "CONT")
}
