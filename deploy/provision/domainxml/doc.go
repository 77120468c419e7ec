// Package domainxml writes what libvirt is told: the XML of domains, networks, pools
// and volumes; and finds our mark in what libvirt tells. It does nothing else: all is a
// function of its arguments, and testdata has examples of each.
//
// What any user of a hypervisor may read, domains above all, holds no secrets: private
// keys are in files that only these texts name.
package domainxml
