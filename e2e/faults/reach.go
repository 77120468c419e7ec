package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// memory is the part of state.json that the suite looks at.
type memory struct {
	Intents  []json.RawMessage          `json:"intents"`
	Cluster  json.RawMessage            `json:"cluster"`
	Nodes    map[string]json.RawMessage `json:"nodes"`
	Machines map[string]struct {
		MAC     string `json:"mac"`
		Address string `json:"address"`
	} `json:"machines"`
}

func (s *site) memory() (memory, error) {
	var m memory
	text, err := os.ReadFile(s.state("state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

// domain is what the node's machine is called on the hypervisor.
func (s *site) domain(node string) string { return "demo-" + node }

// eachRule adds or removes the rules that keep the operator's packets from a node.
func (s *site) eachRule(ctx context.Context, node, action string) error {
	return s.located(ctx, node, func(ctx context.Context, _, address string) error {
		for _, rule := range [][]string{{"INPUT", "-s"}, {"OUTPUT", "-d"}} {
			if err := s.command(s.lab.Command(ctx, "iptables", "-w", action, rule[0], rule[1], address, "-j", "DROP")); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachFrame adds or removes the rules that drop every frame from or to a node.
func (s *site) eachFrame(ctx context.Context, node, action string) error {
	return s.located(ctx, node, func(ctx context.Context, mac, _ string) error {
		for _, rule := range [][]string{{"INPUT", "-s"}, {"FORWARD", "-s"}, {"FORWARD", "-d"}, {"OUTPUT", "-d"}} {
			if err := s.command(s.lab.Command(ctx, "ebtables", "--concurrent", action, rule[0], rule[1], mac, "-j", "DROP")); err != nil {
				return err
			}
		}
		return nil
	})
}

// located calls do with the node's addresses, as soon as nixbench has decided on them. They stay
// the same until the cluster is destroyed, so the ones that were found first are used to the end.
func (s *site) located(ctx context.Context, node string, do func(ctx context.Context, mac, address string) error) error {
	if err := s.retry(ctx, func(ctx context.Context) error {
		if s.addresses[node].mac != "" {
			return nil
		}
		m, err := s.memory()
		if err == nil && m.Machines[node].Address == "" {
			err = fmt.Errorf("%s has no address yet", node)
		}
		if err == nil {
			s.addresses[node] = place{m.Machines[node].MAC, m.Machines[node].Address}
		}
		return err
	}); err != nil {
		return err
	}
	return do(context.WithoutCancel(ctx), s.addresses[node].mac, s.addresses[node].address)
}

// place is where a node is on the network.
type place struct{ mac, address string }

// onDisk runs a script in the lab's namespaces, in which $root is the node's file system.
func (s *site) onDisk(ctx context.Context, node, script string) error {
	find := fmt.Sprintf(`p=$(cat /run/libvirt/lxc/%s.pid) || exit 1
		read -r init _ < "/proc/$p/task/$p/children" || [ -n "$init" ] || exit 1
		root=/proc/$init/root; [ -e "$root/usr/sbin/lab-init" ] || exit 1
		`, s.domain(node))
	return s.command(s.lab.Inside(ctx, "bash", "-c", find+script))
}

// isGone reports whether libvirt answers, and has no machine for the node.
func (s *site) isGone(ctx context.Context, node string) bool {
	out, err := s.lab.Command(ctx, "virsh", "-q", "-c", "lxc:///system", "list", "--all", "--name").Output()
	return err == nil && !slices.Contains(strings.Fields(string(out)), s.domain(node))
}

// signalLibvirtd sends a signal to libvirtd, whose number counts in the lab.
func (s *site) signalLibvirtd(ctx context.Context, signal string) error {
	return s.command(s.lab.Inside(context.WithoutCancel(ctx), "bash", "-c", fmt.Sprintf(`kill -%s "$(cat /run/libvirt/libvirtd.pid)"`, signal)))
}

// awaitLibvirtd waits until it answers.
func (s *site) awaitLibvirtd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return s.retry(ctx, func(ctx context.Context) error {
		return s.command(s.lab.Command(ctx, "timeout", "5", "virsh", "-q", "-c", s.lab.URI("lxc"), "uri"))
	})
}

// awaitNode waits until a node whose network was cut can be reached again, for 30 s at most. One that
// has booted meanwhile asks for its address once in a while only. A node whose machine does not run is not
// waited for.
func (s *site) awaitNode(ctx context.Context, node string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_ = s.retry(ctx, func(ctx context.Context) error {
		out, err := s.lab.Command(ctx, "timeout", "5", "virsh", "-q", "-c", s.lab.URI("lxc"), "domstate", s.domain(node)).Output()
		if err != nil || strings.TrimSpace(string(out)) != "running" {
			return nil
		}
		return s.command(s.lab.Command(ctx, "timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/"+s.addresses[node].address+"/22"))
	})
}

func (s *site) filler() string { return filepath.Join(s.seen(), "filler") }

// fillState leaves no room in the state folder.
func (s *site) fillState() error {
	f, err := os.Create(s.filler())
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for size := len(block); size > 0; {
		if _, err := f.Write(block[:size]); err != nil {
			size /= 2 // the rest may still hold less
		}
	}
	return nil
}

func (s *site) freeState() error {
	err := os.Remove(s.filler())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
