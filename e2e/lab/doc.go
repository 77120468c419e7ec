// Package lab gives an end-to-end test a set of machines: containers with a real
// systemd, sshd and Nix daemon, on a private libvirt network, started in about
// two seconds and gone without a trace afterwards.
//
//	func TestDeploy(t *testing.T) {
//		l := lab.Start(t, 3, lab.WithDisk("m2", "200M"))
//		l.Run(t, "m1", "systemctl is-active nix-daemon.socket")
//		out, err := l.Command(t.Context(), "nixbench", "apply").CombinedOutput()
//		…
//	}
//
// Machines live in network namespaces of their own, and so must whoever talks to
// them: start clients with [Lab.Command]. Everything else about a client is the
// host's: its files, its processes, its Nix.
//
// A test of what makes machines starts with [Hypervisor]: a libvirt with nothing on
// it, and an [Image] for each kind of machine.
//
// Tests that call [Start] are skipped unless NIXBENCH_E2E=1. With it, a host that
// lacks something is a failure that says what is missing: a suite that skips
// silently proves nothing. The program "lab" beside this file does the work, and
// does it by hand too; the README tells how.
package lab
