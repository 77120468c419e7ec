package changes

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/state"
)

// validate returns an error if no plan can be made from these inputs.
func validate(desired []Desired, inventories map[string]provider.Inventory, o Options) error {
	if err := validateDistinctHosts(inventories, o.Closed); err != nil {
		return err
	}
	if err := validateAllowedHypervisors(desired, inventories, o.Closed); err != nil {
		return err
	}
	if err := validateNetwork(o.Network); err != nil {
		return err
	}
	if err := validateNetworkOwner(inventories, o); err != nil {
		return err
	}
	return validateRecordedHypervisors(desired, inventories, o.Recorded)
}

// validateDistinctHosts returns an error if two names in the hive refer to the same hypervisor. Without this error, nixbench would
// observe each machine on that hypervisor twice, take one of the two for a duplicate, and remove the machine.
func validateDistinctHosts(inventories map[string]provider.Inventory, closed map[string]bool) error {
	type hypervisor struct {
		host string
		kind provider.Kind
	}
	first := map[hypervisor]string{}
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		h := hypervisor{inventories[name].Host, inventories[name].Kind}
		other, twice := first[h]
		if h.host == "" || !twice {
			first[h] = name
			continue
		}
		e := &PlanError{
			Text: fmt.Sprintf("hypervisors %s and %s are the same hypervisor: both are on host %s and run the same kind of machines", other, name, strings.Fields(h.host)[0]),
			Fix:  "keep one of them in cluster.hypervisors",
		}
		for old, now := range map[string]string{other: name, name: other} {
			if closed[old] {
				e.Text += fmt.Sprintf("; its machines are recorded on %s", old)
				e.Fix = fmt.Sprintf("call it %s again in cluster.hypervisors, not %s", old, now)
			}
		}
		return e
	}
	return nil
}

// validateNetworkOwner returns an error if a hypervisor has a network with our network's name that this cluster does not own. The error
// also occurs if the state folder was lost: the cluster then has a new id, and the network has the old id.
func validateNetworkOwner(inventories map[string]provider.Inventory, o Options) error {
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		if net := inventories[name].Network; o.Network.Mode.Ours() && net != nil && !net.Ours {
			if net.Owner != "" {
				return &PlanError{
					Text: fmt.Sprintf("hypervisor %s already has a network %s, which nixbench created for %s; this cluster has the id %s", name, o.Network.Name, net.Owner, o.Cluster.ID),
					Fix: fmt.Sprintf("run nixbench destroy with the state folder of that cluster; if that folder is lost, remove the machines with its id by hand, then network %s; or choose another cluster.network.name",
						o.Network.Name),
				}
			}
			return &PlanError{
				Text: fmt.Sprintf("hypervisor %s already has a network %s, which does not belong to this cluster", name, o.Network.Name),
				Fix:  `choose another cluster.network.name, or use the network as it is with cluster.network.mode = "existing"; if it belongs to this cluster, the state folder was lost: restore it`,
			}
		}
	}
	return nil
}

// validateRecordedHypervisors returns an error if a node's machine is recorded on a hypervisor that was not
// surveyed. Otherwise the plan would create a second machine for the node.
func validateRecordedHypervisors(desired []Desired, inventories map[string]provider.Inventory, recorded map[string]state.Machine) error {
	for _, w := range desired {
		k := recorded[w.Node]
		if _, surveyed := inventories[k.Hypervisor]; k.Image != nil && !surveyed {
			return &PlanError{
				Text: fmt.Sprintf("%s: its machine is on hypervisor %s, which the hive no longer names", w.Node, k.Hypervisor),
				Fix: fmt.Sprintf("add it to cluster.hypervisors again, or remove the machine first: nixbench destroy --on %s; or, if the hypervisor is permanently lost: nixbench destroy --forget-hypervisor %s",
					w.Node, k.Hypervisor),
			}
		}
	}
	return nil
}

// validateAllowedHypervisors returns an error if a role names a hypervisor that the hive does not contain.
func validateAllowedHypervisors(desired []Desired, inventories map[string]provider.Inventory, closed map[string]bool) error {
	for _, w := range desired {
		for _, name := range w.On {
			if _, ok := inventories[name]; ok && !closed[name] {
				continue
			}
			open := slices.DeleteFunc(slices.Sorted(maps.Keys(inventories)), func(name string) bool { return closed[name] })
			return &PlanError{
				Text: fmt.Sprintf("roles.%s.hypervisors: cluster.hypervisors has no %s, only %s", w.Role, name, strings.Join(open, ", ")),
				Fix:  "use one of these names, or add it to cluster.hypervisors",
			}
		}
	}
	return nil
}

// validateRange returns an error if the plan creates or starts a managed network on a hypervisor, and another network
// there overlaps the address range of the managed network. An overlap with an interface of the hypervisor is not
// detected here, but by the provider when the network starts.
func (p Plan) validateRange(inventories map[string]provider.Inventory) error {
	if !p.Network.Mode.Ours() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		net := inventories[name].Network
		there := net != nil && net.CIDR == p.Network.CIDR.Masked()
		if !p.usesHypervisor(name) || there && net.Active {
			continue
		}
		for _, r := range inventories[name].Ranges {
			if !r.CIDR.Overlaps(p.Network.CIDR) || there && !r.Active {
				continue
			}
			return &PlanError{
				Text: fmt.Sprintf("hypervisor %s: the address range is taken: network %s needs %s, and network %s has %s", name, p.Network.Name, p.Network.CIDR, r.Network, r.CIDR),
				Fix:  "choose another cluster.network.cidr, or remove that network",
			}
		}
	}
	return nil
}

// Limits of names in bytes. A provider creates files that are named after machines and networks, with suffixes of up to
// 14 bytes. A file name has at most 255 bytes.
const (
	maxName   = 200
	maxDomain = 253 // a DNS name
	maxLabel  = 63  // a label of a DNS name; a host name is one label
	maxLink   = 15  // a Linux network interface
)

var (
	dnsLabel = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)
	linkName = regexp.MustCompile(`^[^/:\s]+$`)
	fileName = regexp.MustCompile(`^[^/\x00-\x1f\x7f]*[^/\x00-\x1f\x7f\s][^/\x00-\x1f\x7f]*$`)
)

// validateName returns an error if name is longer than max bytes, or if isValid is false. The error mentions the option
// and what kind of name it is.
func validateName(option, name, what string, max int, isValid bool) error {
	why := ""
	switch {
	case name == "":
		why = "it is empty"
	case len(name) > max:
		why = fmt.Sprintf("it has %d bytes, and may have %d", len(name), max)
		name = strings.ToValidUTF8(name[:min(len(name), maxLabel)], "")
	case !isValid:
		why = "it contains a character that such a name cannot have"
	default:
		return nil
	}
	return &PlanError{Text: fmt.Sprintf("%s: %q cannot be %s: %s", option, name, what, why), Fix: "choose another " + option}
}

// validateNetwork returns an error if the network has a bridge, a name or a DNS domain that is not valid on any
// hypervisor.
func validateNetwork(n provider.Network) error {
	if n.Mode == provider.Bridge {
		return validateName("cluster.network.bridge", n.Bridge, "an interface of Linux", maxLink, linkName.MatchString(n.Bridge) && n.Bridge != "." && n.Bridge != "..")
	}
	err := validateName("cluster.network.name", n.Name, "a network", maxName, fileName.MatchString(n.Name))
	if err != nil || !n.Mode.Ours() || n.Domain == "" {
		return err
	}
	isDNSName := !slices.ContainsFunc(strings.Split(n.Domain, "."), func(label string) bool { return !dnsLabel.MatchString(label) })
	return validateName("cluster.network.domain", n.Domain, "a DNS domain", maxDomain, isDNSName)
}

// validateMachineName returns an error if the node's host name or the name of its machine is not valid.
func validateMachineName(c provider.Cluster, node string) error {
	if len(node) > maxLabel {
		return &PlanError{
			Text: fmt.Sprintf("%s: its name has %d bytes, and a host name at most %d", node, len(node), maxLabel),
			Fix:  "give the role a shorter name",
		}
	}
	name := c.MachineName(node)
	return validateName("meta.name", name, "a machine", maxName, fileName.MatchString(name))
}
