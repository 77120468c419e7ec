// Package libvirt is the provider for hypervisors that libvirt runs: QEMU's virtual
// machines and Linux containers, here or on another host. It is the only package that
// needs cgo. With the build tag libvirt_dlopen the program is built without libvirt, and looks
// for it when it runs.
//
// An operation is a function of a [session]: one connection, on which it looks at what
// is there and does what is missing. libvirt's calls cannot be interrupted, so operations run
// beside their caller, who may stop waiting; they look at their context before every effect.
// When the connection breaks during an operation, because libvirtd was restarted, it is made
// anew and the operation begins again: all are idempotent.
//
// What is made, in which order, and how one that was killed in the middle is recognised, is
// in docs/provisioning.md.
package libvirt
