// Package lab starts machines for end-to-end tests. They are containers with a real systemd,
// sshd and Nix daemon, on a private libvirt network. They start in about two seconds,
// and nothing of them is left when the test has ended.
//
//	func TestDeploy(t *testing.T) {
//		l := lab.Start(t, 3, "--disk", "m2=200M")
//		l.Run(t, "m1", "systemctl is-active nix-daemon.socket")
//		out, err := l.Command(t.Context(), "nixbench", "apply").CombinedOutput()
//		…
//	}
//
// Machines are only reachable from the lab's network namespace: start clients with
// [Lab.Command], which changes only the network namespace. Such clients see the host's files,
// processes and Nix.
//
// A test of a program that creates machines itself starts with [Hypervisor]: a libvirt without
// machines, and an [Image] for each kind of machine.
//
// Tests that call [Start] are skipped unless NIXBENCH_E2E=1. With it they fail on a host
// that lacks something, and the message names what is missing, so that a test is never
// skipped unnoticed. The package runs the shell script "lab" beside this file, which can also
// be used without a test, as the README describes.
package lab
