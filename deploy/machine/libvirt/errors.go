package libvirt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// wrapError wraps an error into a [provider.Error]. If err already contains a [provider.Error], it only sets the node
// in that error if the node is missing. It returns nil for nil.
func (h *Hypervisor) wrapError(node, op string, err error, fix string) error {
	if err == nil {
		return nil
	}
	var e *provider.Error
	if errors.As(err, &e) {
		if e.Node == "" && node != "" {
			with := *e
			with.Node = node
			return &with
		}
		return err
	}
	more, err := explainError(err)
	if fix == "" {
		fix = more
	}
	return &provider.Error{Hypervisor: h.name, Node: node, Op: op, Err: err, Fix: fix}
}

func hasCode(err error, codes ...libvirt.ErrorNumber) bool {
	var e libvirt.Error
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}

func isNotFound(err error) bool {
	return hasCode(err, libvirt.ERR_NO_DOMAIN, libvirt.ERR_NO_NETWORK, libvirt.ERR_NO_STORAGE_POOL, libvirt.ERR_NO_STORAGE_VOL)
}

// explainError returns libvirt's message without its error numbers, and a fix if explainError has one for the message.
func explainError(err error) (fix string, inner error) {
	var e libvirt.Error
	if !errors.As(err, &e) {
		return "", err
	}
	text := strings.TrimPrefix(e.Message, "internal error: ")
	if text == "" {
		return "", err
	}
	inner = errors.New(text)
	contains := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case contains("No space left on device", "Disk quota exceeded"):
		return "make room, or name another pool in cluster.hypervisors", fmt.Errorf("%w: %s", provider.ErrFull, text)
	case contains("Unable to find any firmware", "Failed to locate firmware"):
		return "install UEFI firmware without secure boot on the hypervisor (package ovmf), or set the role's firmware to bios", inner
	case contains("already in use by interface"):
		return "choose another cluster.network.cidr", fmt.Errorf("%w: %s", provider.ErrClash, text)
	case contains("qemu-img"):
		return "install qemu-img on the hypervisor (package qemu-utils)", inner
	case contains("Cannot find 'dnsmasq'", "dnsmasq binary"):
		return "install dnsmasq on the hypervisor (package dnsmasq-base)", inner
	case contains("cannot set up guest memory", "Cannot allocate memory"):
		return "the hypervisor has too little memory left: give the role less memory, or fewer nodes", inner
	}
	return "", inner
}

func (h *Hypervisor) newUnreachableError(err error) error {
	_, inner := explainError(err)
	fix := "check that this works: virsh -c " + h.o.URI + " version; libvirtd must run there (systemctl start libvirtd.socket). To install it: on Debian apt install " +
		"libvirt-daemon-system dnsmasq-base, and qemu-system-x86 qemu-utils or libvirt-daemon-driver-lxc; on NixOS virtualisation.libvirtd.enable = true"
	if text := inner.Error(); strings.Contains(text, "Permission denied") || strings.Contains(text, "authentication") || strings.Contains(text, "polkit") {
		fix = "join the group libvirt, or run as root"
	}
	return h.wrapError("", "connect to "+h.o.URI, fmt.Errorf("%w: %w", provider.ErrUnreachable, inner), fix)
}
