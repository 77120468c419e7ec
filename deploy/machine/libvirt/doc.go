// Package libvirt is the provider for hypervisors that libvirt manages: QEMU virtual machines and Linux containers, on this or another
// host. This is the only package that needs cgo. With the build tag libvirt_dlopen, libvirt is loaded at run time instead of linked.
//
// Each operation is a function with a [session] as its argument. A session is one operation on one connection. The
// function observes the existing objects and creates the missing objects. Calls to libvirt cannot be interrupted, so an
// operation runs in its own goroutine and the caller may stop waiting for it; the operation checks its context before
// every change on the hypervisor. An operation that fails, for instance because libvirtd was restarted, is not repeated. All operations are
// idempotent, so the next run completes it.
//
// docs/provisioning.md lists the objects that nixbench creates, and their names and marks.
package libvirt
