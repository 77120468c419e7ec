// Package domainxml generates the XML of libvirt's domains, networks, pools and volumes, and parses the XML
// that libvirt returns, with nixbench's marks in it. All functions are pure; testdata has an example of
// each.
//
// Users of a hypervisor can read this XML, so it contains no secrets: private keys are in files that the XML
// refers to by path.
package domainxml
