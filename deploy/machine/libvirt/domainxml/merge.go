package domainxml

import (
	"errors"
	"reflect"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// merge merges the XML of a role into a generated domain. It appends the devices. Each feature, and each other element, replaces
// the generated one. It returns an error for <name>, <uuid> and <metadata>, because these identify the owner of the domain.
func merge(to *libvirtxml.Domain, text string) error {
	if !strings.HasPrefix(strings.TrimSpace(text), "<domain") {
		return errors.New("its element is not <domain>")
	}
	var from libvirtxml.Domain
	if err := from.Unmarshal(text); err != nil {
		return err
	}
	if from.Name != "" || from.UUID != "" || from.Metadata != nil {
		return errors.New("<name>, <uuid> and <metadata> are set by nixbench and cannot be replaced")
	}
	replaceFields(reflect.ValueOf(to).Elem(), reflect.ValueOf(from))
	return nil
}

// replaceFields copies each field that is set from one struct to the other. In <devices>, the lists are joined.
func replaceFields(to, from reflect.Value) {
	for i := range from.NumField() {
		t, f := to.Field(i), from.Field(i)
		_, nested := f.Interface().(*libvirtxml.DomainDeviceList)
		if !nested {
			_, nested = f.Interface().(*libvirtxml.DomainFeatureList)
		}
		switch {
		case f.IsZero():
		case nested && !t.IsNil():
			replaceFields(t.Elem(), f.Elem())
		case from.Type() == reflect.TypeFor[libvirtxml.DomainDeviceList]() && f.Kind() == reflect.Slice:
			t.Set(reflect.AppendSlice(t, f))
		default:
			t.Set(f)
		}
	}
}
