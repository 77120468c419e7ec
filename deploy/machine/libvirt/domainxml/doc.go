// Package domainxml generates the XML of libvirt's domains, networks, pools and volumes, and parses the XML
// that libvirt returns, including nixbench's marks in the metadata. All functions are pure; testdata has examples of
// the generated XML.
//
// Users of a hypervisor can read this XML, so it contains no secrets: private keys are in files that the XML
// refers to by path.
package domainxml
