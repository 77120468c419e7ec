package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// recordedState is the part of nixbench's state.json that these tests read.
type recordedState struct {
	Intents  []json.RawMessage          `json:"intents"`
	Cluster  json.RawMessage            `json:"cluster"`
	Nodes    map[string]json.RawMessage `json:"nodes"`
	Machines map[string]recordedMachine `json:"machines"`
}

type recordedMachine struct {
	MAC     string `json:"mac"`
	Address string `json:"address"`
}

func (s *sandbox) readState() (recordedState, error) {
	var m recordedState
	text, err := os.ReadFile(s.state("state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

// domain returns the name of the libvirt domain that is the node's machine.
func domain(node string) string { return "demo-" + node }

// waitForRecord waits until nixbench has recorded the addresses of the node's machine.
func (s *sandbox) waitForRecord(ctx context.Context, node string) (found recordedMachine, err error) {
	err = retry(ctx, func(context.Context) error {
		m, err := s.readState()
		if found = m.Machines[node]; err == nil && found.Address == "" {
			err = fmt.Errorf("%s has no address yet", node)
		}
		return err
	})
	return found, err
}

// onDisk runs a script in the lab's namespaces. In the script, $root is the root folder of the node's file system.
func (s *sandbox) onDisk(ctx context.Context, node, script string) error {
	find := fmt.Sprintf(`p=$(cat /run/libvirt/lxc/%s.pid) || exit 1
		read -r init _ < "/proc/$p/task/$p/children" || [ -n "$init" ] || exit 1
		root=/proc/$init/root; [ -e "$root/usr/sbin/lab-init" ] || exit 1
		`, domain(node))
	return s.command(s.lab.Inside(ctx, "bash", "-c", find+script))
}

// waitForLibvirtd waits for at most 30 s until libvirtd answers.
func (s *sandbox) waitForLibvirtd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return retry(ctx, func(ctx context.Context) error {
		_, err := s.virsh(ctx, "uri")
		return err
	})
}

// waitForNode waits for at most 30 s until a node whose network was cut is reachable again. This can take long: a node
// that has booted without a network requests its address only at long intervals. waitForNode does not wait if the
// node's machine does not run.
func (s *sandbox) waitForNode(ctx context.Context, node, address string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_ = retry(ctx, func(ctx context.Context) error {
		if out, err := s.virsh(ctx, "domstate", domain(node)); err != nil || out != "running" {
			return nil
		}
		return s.command(s.lab.Command(ctx, "timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/"+address+"/22"))
	})
}
