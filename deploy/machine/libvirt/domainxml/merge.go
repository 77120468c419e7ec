package domainxml

import (
	"errors"
	"fmt"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// mergeXML merges a role's XML into a generated domain. It appends the children of <devices> to the generated devices.
// Each child of <features>, and each other element, replaces the generated elements with the same name. It returns an
// error for <name>, <uuid> and <metadata>, because they identify the domain's owner.
func mergeXML(domain, more string) (string, error) {
	add, err := parseElement(more)
	if err != nil {
		return "", err
	}
	if add.name() != "domain" {
		return "", fmt.Errorf("its element is <%s>, not <domain>", add.name())
	}
	base, err := parseElement(domain)
	if err != nil {
		return "", err
	}
	for _, a := range add.start.Attr {
		if strings.HasPrefix(a.Name.Local, "xmlns:") {
			base.start.Attr = append(base.start.Attr, a)
		}
		if a.Name.Local == "type" {
			base.start.Attr[0] = a // the first attribute of the generated element is its type
		}
	}
	replaced := map[string]bool{}
	for _, e := range add.childElements() {
		name := e.name()
		ours := base.findChild(name)
		switch {
		case name == "name" || name == "uuid" || name == "metadata":
			return "", fmt.Errorf("<%s> is set by nixbench and cannot be replaced", name)
		case ours == nil || replaced[name]: // an element such as <sysinfo> may occur several times
			base.children = append(base.children, e)
			replaced[name] = true
		case name == "devices":
			ours.children = append(ours.children, e.children...)
		case name == "features": // each feature may occur only once
			for _, f := range e.childElements() {
				ours.removeChildren(f.name())
				ours.children = append(ours.children, f)
			}
		default:
			base.removeChildren(name)
			base.children = append(base.children, e)
			replaced[name] = true
		}
	}
	merged, err := base.String()
	if err != nil {
		return "", err
	}
	var check libvirtxml.Domain
	if err := check.Unmarshal(merged); err != nil {
		return "", err
	}
	if check.Devices == nil {
		return "", errors.New("the merged domain has no devices")
	}
	return merged, nil
}
