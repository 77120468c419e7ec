package machine

import (
	"fmt"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"regexp"
	"strings"
)

// Limits of names in bytes. libvirt creates files that are named after domains and networks, with suffixes of up to
// 14 bytes. A file name has at most 255 bytes.
const (
	maxName   = 200
	maxDomain = 253 // a DNS name
	maxLabel  = 63  // length of a label of a DNS name; a host name is one label
	maxLink   = 15  // a Linux network interface
)

var dnsLabel = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?$`)

// validateNetwork returns an error if the network has a bridge, a name or a DNS domain that is not valid on any
// hypervisor.
func validateNetwork(n provider.Network) error {
	if n.Mode == provider.Bridge {
		if why := describeLinkNameFault(n.Bridge); why != "" {
			return &PlanError{
				Text: fmt.Sprintf("cluster.network.bridge: %q cannot be an interface of Linux: %s", n.Bridge, why),
				Fix:  "set it to the name of a bridge of the hypervisor; ip link show type bridge lists them",
			}
		}
		return nil
	}
	if why := describeNameFault(n.Name); why != "" {
		return &PlanError{Text: fmt.Sprintf("cluster.network.name: %q cannot be a network of libvirt: %s", shorten(n.Name), why), Fix: "choose another cluster.network.name"}
	}
	if !n.Mode.Ours() {
		return nil
	}
	if why := describeDNSNameFault(n.Domain); n.Domain != "" && why != "" {
		return &PlanError{Text: fmt.Sprintf("cluster.network.domain: %q cannot be a DNS domain: %s", shorten(n.Domain), why), Fix: "choose another cluster.network.domain"}
	}
	return nil
}

// validateNames returns an error if the node's host name or domain name is not valid.
func validateNames(c provider.Cluster, node string) error {
	if len(node) > maxLabel {
		return &PlanError{
			Text: fmt.Sprintf("%s: its name has %d bytes, and a host name at most %d", node, len(node), maxLabel),
			Fix:  "give the role a shorter name",
		}
	}
	if why := describeNameFault(c.MachineName(node)); why != "" {
		return &PlanError{
			Text: fmt.Sprintf("%s: %q cannot be a machine of libvirt: %s", node, shorten(c.MachineName(node)), why),
			Fix:  "choose another meta.name, or another name for the role",
		}
	}
	return nil
}

// describeNameFault returns why a name is not valid for a libvirt domain or network; empty if it is valid.
func describeNameFault(name string) string {
	switch {
	case strings.TrimSpace(name) == "":
		return "it is empty"
	case len(name) > maxName:
		return fmt.Sprintf("it has %d bytes, and may have %d", len(name), maxName)
	case strings.Contains(name, "/"):
		return "it contains a /"
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "it contains a control character"
	}
	return ""
}

// describeLinkNameFault returns why a name is not valid for a Linux network interface; empty if it is valid.
func describeLinkNameFault(name string) string {
	switch {
	case name == "":
		return "it is empty"
	case len(name) > maxLink:
		return fmt.Sprintf("it has %d bytes, and may have %d", len(name), maxLink)
	case name == "." || name == ".." || strings.ContainsAny(name, "/: \t\r\n\v\f"):
		return "it contains a character that such a name cannot have"
	}
	return ""
}

// describeDNSNameFault returns why a name is not a valid DNS name; empty if it is valid.
func describeDNSNameFault(name string) string {
	if len(name) > maxDomain {
		return fmt.Sprintf("it has %d bytes, and may have %d", len(name), maxDomain)
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) > maxLabel {
			return fmt.Sprintf("%q has %d bytes, and a part between dots may have %d", shorten(label), len(label), maxLabel)
		}
		if !dnsLabel.MatchString(label) {
			return fmt.Sprintf("%q is not a valid name; use letters, digits and hyphens", label)
		}
	}
	return ""
}

// shorten cuts a name to 63 bytes, for use in messages.
func shorten(name string) string {
	if len(name) <= maxLabel {
		return name
	}
	return strings.ToValidUTF8(name[:maxLabel], "") + "…"
}
