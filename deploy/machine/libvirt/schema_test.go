package libvirt

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"libvirt.org/go/libvirt"
)

var domainType = regexp.MustCompile(`^<domain type="\w+"`)

// libvirt's schema accepts the XML of each kind of machine. Otherwise libvirt ignores the elements that it does not know.
func TestDomainsAreValid(t *testing.T) {
	c, err := libvirt.NewConnect(testURI(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close() })
	// validate returns an error of the schema; the test driver does not accept all domains that are valid.
	validate := func(text string) error {
		d, err := c.DomainDefineXMLFlags(domainType.ReplaceAllString(text, `<domain type="test"`), libvirt.DOMAIN_DEFINE_VALIDATE)
		if err == nil {
			_ = d.Undefine()
			_ = d.Free()
		} else if strings.Contains(err.Error(), "validate against schema") {
			return err
		}
		return nil
	}
	files, err := filepath.Glob("testdata/*.xml")
	if err != nil {
		t.Fatal(err)
	}
	firmware := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !domainType.Match(text) {
			continue
		}
		if err := validate(string(text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if other := strings.Replace(string(text), `name="secure-boot"`, `name="no-such-feature"`, 1); other != string(text) {
			firmware++
			if validate(other) == nil {
				t.Errorf("%s: an unknown feature of the firmware is valid, so this test shows nothing", file)
			}
		}
	}
	if firmware != 2 {
		t.Errorf("%d machines choose a feature of the firmware, want those with UEFI", firmware)
	}
}
