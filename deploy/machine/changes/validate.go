package changes

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// validate returns an error if no plan can be made from these inputs.
func validate(desired []Desired, inventories map[string]provider.Inventory, o Options) error {
	if err := validateDistinctHosts(inventories); err != nil {
		return err
	}
	if err := validateAllowedHypervisors(desired, inventories, o.Closed); err != nil {
		return err
	}
	if err := validateNetwork(o.Network); err != nil {
		return err
	}
	return validateNetworkOwner(inventories, o)
}

// validateDistinctHosts returns an error if two names in the hive refer to the same hypervisor. Without this error, nixbench would
// observe each machine on that hypervisor twice.
func validateDistinctHosts(inventories map[string]provider.Inventory) error {
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
		return &PlanError{
			Text: fmt.Sprintf("hypervisors %s and %s are the same hypervisor: both are on host %s and run the same kind of machines", other, name, strings.Fields(h.host)[0]),
			Fix:  "keep one of them in cluster.hypervisors; if its machines exist, with the name under which they were created",
		}
	}
	return nil
}

// validateNetworkOwner returns an error if an existing network that the hive names is missing or not active, or if a hypervisor has a
// network with our network's name that this cluster does not own. The latter also occurs if the state folder was lost: the cluster then
// has a new id, and the network has the old id.
func validateNetworkOwner(inventories map[string]provider.Inventory, o Options) error {
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		net := inventories[name].Network
		if o.Network.Mode == provider.Existing && (net == nil || !net.Active) {
			return &PlanError{
				Text: fmt.Sprintf("hypervisor %s: there is no network %s, or it is not active", name, o.Network.Name),
				Fix:  `define and start it, or set cluster.network.mode to "nat"`,
			}
		}
		if o.Network.Mode.Ours() && net != nil && !net.Ours {
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

// dnsLabel matches a part of a DNS name.
const dnsLabel = `[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?`

// nameRule says which names are valid on every hypervisor.
type nameRule struct {
	what    string // such as `a network (at most 200 bytes, without /)`
	max     int    // bytes
	pattern *regexp.Regexp
}

// A provider creates files that are named after machines and networks, with suffixes of up to 14 bytes. A file name has at most 255 bytes.
var (
	linkRule    = nameRule{"an interface of Linux (at most 15 bytes)", 15, regexp.MustCompile(`^[^/:\s]+$`)}
	networkRule = nameRule{"a network (at most 200 bytes, without /)", 200, fileName}
	machineRule = nameRule{"a machine (at most 200 bytes, without /)", 200, fileName}
	domainRule  = nameRule{"a DNS domain", 253, regexp.MustCompile(`^` + dnsLabel + `(\.` + dnsLabel + `)*$`)}
	fileName    = regexp.MustCompile(`^[^/\x00-\x1f\x7f]+$`)
)

// validateName returns an error if the name that an option sets is not valid.
func validateName(option, name string, rule nameRule) error {
	if len(name) <= rule.max && rule.pattern.MatchString(name) && strings.Trim(name, " .") != "" {
		return nil
	}
	return &PlanError{Text: fmt.Sprintf("%s: %q cannot be %s", option, name, rule.what), Fix: "choose another " + option}
}

// validateNetwork returns an error if the network has a bridge, a name or a DNS domain that is not valid.
func validateNetwork(n provider.Network) error {
	if n.Mode == provider.Bridge {
		return validateName("cluster.network.bridge", n.Bridge, linkRule)
	}
	err := validateName("cluster.network.name", n.Name, networkRule)
	if err == nil && n.Mode.Ours() && n.Domain != "" {
		err = validateName("cluster.network.domain", n.Domain, domainRule)
	}
	return err
}

// validateMachineName returns an error if the node's host name or the name of its machine is not valid.
func validateMachineName(c provider.Cluster, node string) error {
	const maxLabel = 63 // a host name is one label of a DNS name
	if len(node) > maxLabel {
		return &PlanError{
			Text: fmt.Sprintf("%s: its name has %d bytes, and a host name at most %d", node, len(node), maxLabel),
			Fix:  "give the role a shorter name",
		}
	}
	return validateName("meta.name", c.MachineName(node), machineRule)
}
