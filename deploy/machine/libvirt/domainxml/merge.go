package domainxml

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
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
	if name := elementName(add.start); name != "domain" {
		return "", fmt.Errorf("its element is <%s>, not <domain>", name)
	}
	base, err := parseElement(domain)
	if err != nil {
		return "", err
	}
	for _, text := range add.children {
		switch name := elementName(text); name {
		case "name", "uuid", "metadata":
			return "", fmt.Errorf("<%s> is set by nixbench and cannot be replaced", name)
		case "devices", "features":
		default:
			base.removeChildren(name)
		}
	}
	for _, text := range add.children {
		name := elementName(text)
		i := slices.IndexFunc(base.children, func(c string) bool { return elementName(c) == name })
		if i < 0 || name != "devices" && name != "features" { // an element such as <sysinfo> may occur several times
			base.children = append(base.children, text)
		} else if base.children[i], err = mergeChildren(base.children[i], text); err != nil {
			return "", err
		}
	}
	for _, a := range domainAttribute.FindAllString(add.start, -1) {
		if strings.HasPrefix(strings.TrimSpace(a), "type") {
			base.start = "<domain"
		}
		base.start = strings.TrimSuffix(base.start, ">") + a + ">"
	}
	merged := base.String()
	var check libvirtxml.Domain
	if err := check.Unmarshal(merged); err != nil {
		return "", err
	}
	if check.Devices == nil {
		return "", errors.New("the merged domain has no devices")
	}
	return merged, nil
}

// mergeChildren adds the children of one element to another. A child of <features> replaces the child with the same
// name, because each feature may occur only once.
func mergeChildren(to, from string) (string, error) {
	base, err := parseElement(to)
	if err != nil {
		return "", err
	}
	add, err := parseElement(from)
	if err != nil {
		return "", err
	}
	for _, text := range add.children {
		if elementName(to) == "features" {
			base.removeChildren(elementName(text))
		}
		base.children = append(base.children, text)
	}
	return base.String(), nil
}

// element is an XML element: its start tag, and the texts of its child elements. Text between the children is left out.
type element struct {
	start    string
	children []string
}

// domainAttribute matches those attributes of a role's <domain> that are added to the generated <domain>.
var domainAttribute = regexp.MustCompile(`\s(?:type|xmlns:[^\s=]+)\s*=\s*(?:"[^"]*"|'[^']*')`)

var elementStart = regexp.MustCompile(`^<([^\s/>]+)`)

// elementName returns the name of an element, with its namespace prefix, from the element's text.
func elementName(text string) string { return elementStart.FindStringSubmatch(text)[1] }

// parseElement parses a text that must contain exactly one XML element.
func parseElement(text string) (element, error) {
	var e element
	dec := xml.NewDecoder(strings.NewReader(text))
	depth, from := 0, int64(0)
	for {
		at := dec.InputOffset()
		t, err := dec.Token()
		switch {
		case err == io.EOF && e.start == "":
			return e, errors.New("there is no element")
		case err == io.EOF:
			return e, nil
		case err != nil:
			return e, err
		}
		switch t := t.(type) {
		case xml.StartElement:
			if depth == 0 && e.start != "" {
				return e, errors.New("there is more than one element")
			}
			switch depth++; depth {
			case 1:
				e.start = strings.TrimSuffix(strings.TrimSuffix(text[at:dec.InputOffset()], ">"), "/") + ">"
			case 2:
				from = at
			}
		case xml.EndElement:
			if depth--; depth == 1 {
				e.children = append(e.children, text[from:dec.InputOffset()])
			}
		case xml.CharData:
			if depth == 0 && strings.TrimSpace(string(t)) != "" {
				return e, errors.New("there is text outside of the element")
			}
		}
	}
}

func (e *element) removeChildren(name string) {
	e.children = slices.DeleteFunc(e.children, func(c string) bool { return elementName(c) == name })
}

func (e element) String() string {
	return e.start + "\n" + strings.Join(e.children, "\n") + "\n</" + elementName(e.start) + ">"
}
