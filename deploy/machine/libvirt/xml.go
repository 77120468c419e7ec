package libvirt

import (
	"crypto/sha256"
	"embed"
	"encoding/xml"
	"fmt"
	"strings"
	"text/template"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// The templates generate the XML of domains, networks, pools and volumes; testdata has examples. Users of a hypervisor can read this XML,
// so it contains no secrets: private keys are in files that the XML refers to by path.
//
//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.ParseFS(templateFiles, "templates/*.xml"))

func executeTemplate(name string, data any) (string, error) {
	var b strings.Builder
	err := templates.ExecuteTemplate(&b, name, data)
	return b.String(), err
}

type volume struct {
	Name          string
	Format        string // qcow2 or raw
	Capacity      uint64 // bytes
	Backing       string // path of a qcow2's backing file
	BackingFormat string // format of the backing file
	Mode          string
}

func deriveUUID(words ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", words))
	sum[6] = sum[6]&0x0f | 0x80 // version 8: defined by the application
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

func domainUUID(c provider.Cluster, node string) string { return deriveUUID("machine", c.ID, node) }

func networkUUID(c provider.Cluster, name string) string { return deriveUUID("network", c.ID, name) }

// poolUUID returns the UUID of a pool that nixbench creates. The UUID shows that nixbench owns the pool, because pools have no metadata.
func poolUUID(name, path string) string { return deriveUUID("pool", name, path) }

func poolXML(name, path string) (string, error) {
	return executeTemplate("pool", struct{ Name, UUID, Path string }{name, poolUUID(name, path), path})
}

// machineMark is the metadata of a domain: the cluster and node that own the domain, and the image and the
// definition that the domain was created from.
type machineMark struct {
	Cluster    string `xml:"cluster,attr"`
	ID         string `xml:"id,attr"`
	Node       string `xml:"node,attr"`
	Role       string `xml:"role,attr"`
	Image      string `xml:"image,attr"`
	Definition string `xml:"definition,attr"`
}

type networkMark struct {
	Cluster string `xml:"cluster,attr"`
	ID      string `xml:"id,attr"`
}

// marks are the marks of nixbench in the metadata of a domain or network. Other tools put their own elements beside them.
type marks struct {
	Machine *machineMark `xml:"urn:nixbench:machine:1 machine"`
	Network *networkMark `xml:"urn:nixbench:network:1 network"`
}

func parseMarks(metadata string) marks {
	var m marks
	// The elements of the metadata are wrapped, because an XML document has only one root element.
	if xml.Unmarshal([]byte("<metadata>"+metadata+"</metadata>"), &m) != nil {
		return marks{}
	}
	return m
}
