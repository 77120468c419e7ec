// Package real tests nixbench on machines that run a real NixOS, as far as it can be had without a
// binary cache: the modules, scripts and programs of a nixpkgs that the computer has, with packages
// that are links to the programs of the lab's Debian guest.
//
// Real are: the NixOS modules and lib of the nixpkgs; the toplevel with its unit files, built by Nix 2.26; switch-to-configuration-ng;
// nixos-rebuild-ng, run by Debian's Python; stage 2 of the boot, setup-etc.pl, update-users-groups.pl and setuid wrappers, run by Debian's
// bash, Perl and systemd.
//
// Debian's are: systemd, bash, coreutils, OpenSSH, Nix, dbus-daemon, containerd and iptables, each a store path of links into /usr. Kubernetes is
// built by e2e/kube. Units of a systemd newer than Debian's are left out (systemd.suppressedSystemUnits in machine.nix).
//
// Missing are: a compiler (packages with sources evaluate, and cannot be built), a kernel, an initrd and a boot loader (machines are containers),
// systemd-resolved, nscd, dbus-broker, userborn, and locales other than C.UTF-8. The first boot into NixOS moves Debian's /etc to /etc.debian.
//
// The tests need NIXBENCH_E2E=1 and two more variables, and are skipped without them, also with
// NIXBENCH_REQUIRE: NIXBENCH_NIXPKGS is the folder of a nixpkgs, and NIXBENCH_SWITCH its program
// switch-to-configuration. `make real` runs them.
//
// default.nix is the nixpkgs of the tests' hives: stages.nix is its standard environment, overlay.nix and
// systemd.nix are its packages, and machine.nix is the NixOS module of all machines.
package real
