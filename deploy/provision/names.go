package provision

import (
	"fmt"
	"regexp"
	"strings"
)

// What names may be. libvirt makes files of the names of domains and networks, with endings of up to
// 14 bytes; a file's name has at most 255.
const (
	maxName   = 200
	maxDomain = 253 // of a DNS name
	maxLabel  = 63  // of a part of one, and so of a host name
	maxLink   = 15  // of a network interface of Linux
)

var dnsLabel = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?$`)

// checkNetwork refuses a network that no hypervisor could make or use.
func checkNetwork(n Network) error {
	if n.Mode == Bridge {
		if why := badLink(n.Bridge); why != "" {
			return &PlanError{
				Text: fmt.Sprintf("cluster.network.bridge: %q cannot be an interface of Linux: %s", n.Bridge, why),
				Fix:  "set it to the name of a bridge of the hypervisor; ip link show type bridge lists them",
			}
		}
		return nil
	}
	if why := badName(n.Name); why != "" {
		return &PlanError{Text: fmt.Sprintf("cluster.network.name: %q cannot be a network of libvirt: %s", shorten(n.Name), why), Fix: "choose another cluster.network.name"}
	}
	if !n.Mode.Ours() {
		return nil
	}
	if why := badDNS(n.Domain); n.Domain != "" && why != "" {
		return &PlanError{Text: fmt.Sprintf("cluster.network.domain: %q cannot be a DNS domain: %s", shorten(n.Domain), why), Fix: "choose another cluster.network.domain"}
	}
	return nil
}

// checkNames refuses to make a machine whose host name or domain could not be called so.
func checkNames(c Cluster, node string) error {
	if len(node) > maxLabel {
		return &PlanError{
			Text: fmt.Sprintf("%s: its name has %d bytes, and a host name at most %d", node, len(node), maxLabel),
			Fix:  "give the role a shorter name",
		}
	}
	if why := badName(c.Domain(node)); why != "" {
		return &PlanError{
			Text: fmt.Sprintf("%s: %q cannot be a machine of libvirt: %s", node, shorten(c.Domain(node)), why),
			Fix:  "choose another meta.name, or another name for the role",
		}
	}
	return nil
}

// badName says why libvirt cannot call a domain or network so; empty if it can.
func badName(name string) string {
	switch {
	case strings.TrimSpace(name) == "":
		return "it is empty"
	case len(name) > maxName:
		return fmt.Sprintf("it has %d bytes, and may have %d", len(name), maxName)
	case strings.Contains(name, "/"):
		return "it has a / in it"
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "it has a control character in it"
	}
	return ""
}

// badLink says why no interface of Linux can be called so; empty if one can.
func badLink(name string) string {
	switch {
	case name == "":
		return "it is empty"
	case len(name) > maxLink:
		return fmt.Sprintf("it has %d bytes, and may have %d", len(name), maxLink)
	case name == "." || name == ".." || strings.ContainsAny(name, "/: \t\r\n\v\f"):
		return "it has a character in it that such a name cannot have"
	}
	return ""
}

// badDNS says why it is no DNS name; empty if it is one.
func badDNS(name string) string {
	if len(name) > maxDomain {
		return fmt.Sprintf("it has %d bytes, and may have %d", len(name), maxDomain)
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) > maxLabel {
			return fmt.Sprintf("%q has %d bytes, and a part between dots may have %d", shorten(label), len(label), maxLabel)
		}
		if !dnsLabel.MatchString(label) {
			return fmt.Sprintf("%q is no name; use letters, digits and hyphens", label)
		}
	}
	return ""
}

// clip shortens a name that is too long to be read.
func shorten(name string) string {
	if len(name) <= maxLabel {
		return name
	}
	return strings.ToValidUTF8(name[:maxLabel], "") + "…"
}
