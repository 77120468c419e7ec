package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/provision"
	"github.com/nixbench/nixbench/deploy/state"
)

// States of a provision.Finding.
const (
	findingOK      = "ok"
	findingWarning = "warning"
	findingError   = "error"
)

// Examine checks everything that apply needs before it changes anything: this machine, the
// hypervisors, and whether they have room for the machines of the hive.
func (m *Machines) Examine(ctx context.Context, recorded *state.State) []provision.Finding {
	out := []provision.Finding{nixVersion(ctx), nixTrust(ctx), sshClient()}
	if !m.HasMachines(recorded) {
		return out
	}
	all, err := desiredMachines(m.Hive)
	net, netErr := m.clusterNetwork(recorded, len(all) > 0)
	if err := errors.Join(err, netErr); err != nil {
		return append(out, errorFinding("hive", err))
	}
	out = append(out, m.examineImages(ctx)...)
	where := m.hypervisorConfigs(recorded, len(all) > 0)
	findings := map[string][]provision.Finding{}
	inventories := map[string]provision.Inventory{}
	var mu sync.Mutex
	_ = runForAll(sortedKeys(where), func(name string) error { // errors become findings
		list, inventory := m.examineHypervisor(ctx, name, where[name], m.clusterIdentity(recorded), net)
		mu.Lock()
		defer mu.Unlock()
		findings[name] = list
		if inventory != nil {
			inventories[name] = *inventory
		}
		return nil
	})
	for _, name := range sortedKeys(findings) {
		for _, f := range findings[name] {
			if f.Where == "" {
				f.Where = name
			}
			out = append(out, f)
		}
	}
	if len(inventories) == len(where) {
		out = append(out, m.examineCapacity(ctx, recorded, all, inventories)...)
	}
	return out
}

// errorFinding makes a finding of an error.
func errorFinding(what string, err error) provision.Finding {
	return provision.Finding{What: what, State: findingError, Text: err.Error(), Fix: failure.Hint(err)}
}

func (m *Machines) examineHypervisor(ctx context.Context, name string, h state.Hypervisor, c provision.Cluster, net provision.Network) ([]provision.Finding, *provision.Inventory) {
	wait := m.Send.Wait(event.Event{Phase: event.Check, Text: fmt.Sprintf("hypervisor %s: an answer from %s", name, h.URI)})
	defer wait.End()
	p, err := m.Open(ctx, name, h)
	if err != nil {
		return []provision.Finding{errorFinding("libvirt", err)}, nil
	}
	defer hypervisors{name: p}.close()
	var out []provision.Finding
	if d, ok := p.(provision.Doctor); ok {
		out = d.Examine(ctx, net)
	}
	if slices.ContainsFunc(out, func(f provision.Finding) bool { return f.What == "libvirt" && f.State == findingError }) {
		return out, nil // a survey would wait for the same hypervisor again
	}
	inventory, err := p.Survey(ctx, c, net)
	if err != nil {
		for _, f := range out {
			if f.State == findingError {
				return out, nil // a finding reports the reason already
			}
		}
		return append(out, errorFinding("libvirt", err)), nil
	}
	return out, &inventory
}

// examineCapacity compares what the desired machines need with what the hypervisors have.
func (m *Machines) examineCapacity(ctx context.Context, recorded *state.State, all []provision.Desired, inventories map[string]provision.Inventory) []provision.Finding {
	net, _ := m.clusterNetwork(recorded, len(all) > 0) // Examine has checked the error
	plan, err := provision.Make(all, inventories, provision.Options{Cluster: m.clusterIdentity(recorded), Network: net, Recorded: recordedMachines(recorded), Fixed: fixedAddresses(m.Hive), Closed: m.closedHypervisors(m.hypervisorConfigs(recorded, len(all) > 0))})
	if err != nil {
		return []provision.Finding{errorFinding("room", err)}
	}
	out := []provision.Finding{{What: "memory", State: findingOK, Text: capacityText(plan)}}
	disks, pins := map[string]uint64{}, 0
	for _, c := range plan.Changes {
		if c.NeedsImage() {
			disks[c.Hypervisor] += c.Disk()
		}
		pins += len(m.Hive.Roles[c.Role].CPUPins)
	}
	for _, name := range sortedKeys(disks) {
		if inventories[name].FreeDisk == 0 {
			continue // the pool does not exist yet
		}
		f := provision.Finding{What: "disk", State: findingOK, Where: name,
			Text: fmt.Sprintf("new machines may grow to %s; the pool has %s left", provision.SizeText(disks[name]), provision.SizeText(inventories[name].FreeDisk))}
		if disks[name] > inventories[name].FreeDisk {
			f.State, f.Fix = findingWarning, "disks are allocated as they are written, so this may be enough; otherwise reduce roles.*.disk, or enlarge the pool"
		}
		out = append(out, f)
	}
	return out
}

func capacityText(p provision.Plan) string {
	n := 0
	for _, c := range p.Changes {
		if c.Action == provision.Create {
			n++
		}
	}
	if n == 0 {
		return "no machine has to be created"
	}
	return "there is room for " + Count(n, "new machine")
}

// examineImages loads the images that the hive names.
func (m *Machines) examineImages(ctx context.Context) []provision.Finding {
	var out []provision.Finding
	hashes := m.Dir.Hashes()
	for _, role := range sortedKeys(m.Hive.Roles) {
		path := m.Hive.Roles[role].Image
		f := provision.Finding{What: "image", State: findingOK, Where: "role " + role, Text: "it will be built when it is needed"}
		if path != nil {
			if i, err := loadImage(ctx, *path, hashes); err == nil {
				f.Text = fmt.Sprintf("%s, %s, %s", *path, i.Format, roundSize(fileSize(i.Disk)))
			} else if isStorePath(*path) && !exists(*path) {
				f.Text = *path + " will be built when it is needed"
			} else {
				var why *ImageError
				if errors.As(err, &why) {
					why.Role = role
				}
				f = errorFinding("image", err)
				f.Where = "role " + role
			}
		}
		out = append(out, f)
	}
	if exists(string(m.Dir)) {
		_ = hashes.Save() // the saved hashes are only a cache
	}
	return out
}

// nixVersion checks the version of Nix: 2.18 is required; from 2.8 on it only warns.
func nixVersion(ctx context.Context) provision.Finding {
	f := provision.Finding{What: "nix", Fix: "install Nix 2.18 or later, see https://nixos.org/download"}
	text, err := runCommand(ctx, "nix", "--version")
	if err != nil {
		f.State, f.Text = findingError, err.Error()
		return f
	}
	f.State, f.Text = findingOK, text
	fields := strings.Fields(text)
	var major, minor int
	if len(fields) > 0 {
		parts := strings.SplitN(fields[len(fields)-1], ".", 3)
		if len(parts) > 1 {
			major, _ = strconv.Atoi(parts[0])
			minor, _ = strconv.Atoi(parts[1])
		}
	}
	switch {
	case major < 2 || major == 2 && minor < 8:
		f.State = findingError
	case major == 2 && minor < 18:
		f.State, f.Text = findingWarning, text+" is older than the oldest version that nixbench supports"
	default:
		f.Fix = ""
	}
	return f
}

// nixTrust checks whether the Nix store can be reached and whether its daemon trusts the user.
func nixTrust(ctx context.Context) provision.Finding {
	f := provision.Finding{What: "nix store", State: findingOK}
	text, err := runCommand(ctx, "nix", "--extra-experimental-features", "nix-command", "store", "ping", "--json")
	switch {
	case err != nil:
		if _, err = runCommand(ctx, "nix", "--extra-experimental-features", "nix-command", "store", "ping"); err != nil { // older versions have no --json
			f.State, f.Text, f.Fix = findingError, err.Error(), "is nix-daemon running? systemctl start nix-daemon"
			return f
		}
		f.Text = "it can be reached"
	case strings.Contains(text, `"trusted":0`), strings.Contains(text, `"trusted":false`):
		f.State, f.Text = findingWarning, "its daemon does not trust this user"
		f.Fix = "this is enough to build and copy; for --nix-option and unsigned caches, add the user to trusted-users in /etc/nix/nix.conf"
	default:
		f.Text = "it can be reached, and trusts this user"
	}
	return f
}

// sshClient checks for OpenSSH's client. nixbench ssh needs it, and so do nodes with a
// deployment.targetHost, whose connection options come from `ssh -G`.
func sshClient() provision.Finding {
	if path, err := exec.LookPath("ssh"); err == nil {
		return provision.Finding{What: "ssh", State: findingOK, Text: path}
	}
	return provision.Finding{What: "ssh", State: findingWarning, Text: "ssh is not installed", Fix: "install OpenSSH's client; without it nodes with a deployment.targetHost cannot be reached"}
}

func runCommand(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = 300 * time.Millisecond
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			return "", fmt.Errorf("%s: %s", argv[0], text)
		}
		return "", err
	}
	return strings.TrimSpace(stdout.String()), nil
}
