package domainxml

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// tokens is a [xml.TokenReader] of a list of tokens.
type tokens []xml.Token

func (t *tokens) Token() (xml.Token, error) {
	if len(*t) == 0 {
		return nil, io.EOF
	}
	first := (*t)[0]
	*t = (*t)[1:]
	return first, nil
}

// element is a generic XML element. Names include their namespace prefixes.
type element struct {
	start    xml.StartElement
	children []any // *element or xml.CharData
}

func parseElement(text string) (*element, error) {
	dec := xml.NewDecoder(strings.NewReader(text))
	var root *element
	var open []*element
	for {
		t, err := dec.RawToken()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		switch t := t.(type) {
		case xml.StartElement:
			e := &element{start: flattenNames(t.Copy())}
			if len(open) > 0 {
				parent := open[len(open)-1]
				parent.children = append(parent.children, e)
			} else if root != nil {
				return nil, errors.New("there is more than one element")
			} else {
				root = e
			}
			open = append(open, e)
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1].start.Name.Local != prefixedName(t.Name) {
				return nil, fmt.Errorf("</%s> has no start tag", prefixedName(t.Name))
			}
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				parent := open[len(open)-1]
				parent.children = append(parent.children, t.Copy())
			} else if len(bytes.TrimSpace(t)) > 0 {
				return nil, errors.New("there is text outside of the element")
			}
		}
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("<%s> has no end tag", open[len(open)-1].start.Name.Local)
	}
	if root == nil {
		return nil, errors.New("there is no element")
	}
	return root, nil
}

// flattenNames moves the namespace prefix of each name into the local name, so that the encoder does not change the
// prefix.
func flattenNames(s xml.StartElement) xml.StartElement {
	s.Name = xml.Name{Local: prefixedName(s.Name)}
	for i := range s.Attr {
		s.Attr[i].Name = xml.Name{Local: prefixedName(s.Attr[i].Name)}
	}
	return s
}

func prefixedName(n xml.Name) string {
	if n.Space == "" {
		return n.Local
	}
	return n.Space + ":" + n.Local
}

func (e *element) name() string { return e.start.Name.Local }

// childElements returns the child elements.
func (e *element) childElements() []*element {
	var all []*element
	for _, c := range e.children {
		if c, ok := c.(*element); ok {
			all = append(all, c)
		}
	}
	return all
}

// findChild returns the first child element with this name; nil if there is none.
func (e *element) findChild(name string) *element {
	for _, c := range e.childElements() {
		if c.name() == name {
			return c
		}
	}
	return nil
}

// removeChildren removes the children with this name.
func (e *element) removeChildren(name string) {
	e.children = slices.DeleteFunc(e.children, func(c any) bool {
		child, ok := c.(*element)
		return ok && child.name() == name
	})
}

func (e *element) write(enc *xml.Encoder) error {
	if err := enc.EncodeToken(e.start); err != nil {
		return err
	}
	simple := !slices.ContainsFunc(e.children, func(c any) bool { _, nested := c.(*element); return nested })
	for _, c := range e.children {
		switch c := c.(type) {
		case *element:
			if err := c.write(enc); err != nil {
				return err
			}
		case xml.CharData:
			// White space between elements is not written, because the encoder indents elements.
			if simple || len(bytes.TrimSpace(c)) > 0 {
				if err := enc.EncodeToken(c); err != nil {
					return err
				}
			}
		}
	}
	return enc.EncodeToken(e.start.End())
}

func (e *element) String() (string, error) {
	var b bytes.Buffer
	enc := xml.NewEncoder(&b)
	enc.Indent("", "  ")
	if err := e.write(enc); err != nil {
		return "", err
	}
	if err := enc.Close(); err != nil {
		return "", err
	}
	return b.String(), nil
}
