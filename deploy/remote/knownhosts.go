package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"github.com/nixbench/nixbench/deploy/failure"
)

// hostKeys decides whether a host shows the right key. A pinned key is the
// only right one; otherwise the known_hosts files decide, and a key that they do not
// contain is refused unless accept is set, which adds it.
type hostKeys struct {
	cfg        Config
	accept     bool
	known      *KnownHosts
	*knownKeys // the content of the files

	shown    ssh.PublicKey // the key that the callback has accepted
	accepted bool          // the callback has accepted a key
	err      error         // why the callback refused; x/crypto keeps only its text
}

func loadHostKeys(cfg Config, accept bool, known *KnownHosts) (*hostKeys, error) {
	h := &hostKeys{cfg: cfg, accept: accept, known: known}
	if len(cfg.HostKeys) > 0 {
		return h, nil
	}
	return h, h.load()
}

func (h *hostKeys) load() (err error) {
	if h.knownKeys, err = h.known.read(slices.Concat(h.cfg.KnownHosts, h.cfg.GlobalKnownHosts)); err != nil {
		return failure.On(h.cfg.Node, fmt.Errorf("read known hosts: %w", err))
	}
	return nil
}

// algorithms orders the host key algorithms so that the server shows a key
// that we know, if it has one. The others stay in the list, behind: then a
// changed key is distinguished from a failed negotiation.
func (h *hostKeys) algorithms() []string {
	var first []string
	if len(h.cfg.HostKeys) > 0 {
		for _, key := range h.cfg.HostKeys {
			first = append(first, keyAlgorithms(key.Type())...)
		}
	} else {
		first = h.db.HostKeyAlgorithms(h.cfg.knownAs())
	}
	rest := ssh.SupportedAlgorithms().HostKeys
	if len(h.cfg.HostKeyAlgos) > 0 {
		supported := append(slices.Clone(rest), ssh.InsecureAlgorithms().HostKeys...)
		rest = slices.DeleteFunc(slices.Clone(h.cfg.HostKeyAlgos), func(a string) bool {
			return !slices.Contains(supported, a)
		})
	}
	if len(h.cfg.HostKeys) > 0 || !h.hasAuthority() {
		// Without a known certificate authority a certificate cannot be verified, and
		// the server would not show its plain key.
		rest = slices.DeleteFunc(slices.Clone(rest), func(a string) bool { return strings.Contains(a, "-cert-v01@") })
	}
	var all []string
	for _, a := range append(first, rest...) {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

func (h *hostKeys) hasAuthority() bool {
	return slices.ContainsFunc(h.db.HostKeys(h.cfg.knownAs()), func(k knownhosts.PublicKey) bool { return k.Cert })
}

func keyAlgorithms(keyType string) []string {
	if keyType == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{keyType}
}

// check is the ssh.HostKeyCallback.
func (h *hostKeys) check(_ string, _ net.Addr, key ssh.PublicKey) error {
	if h.shown != nil && bytes.Equal(h.shown.Marshal(), key.Marshal()) {
		return nil // rekeying: the key was checked before
	}
	if h.shown != nil {
		h.err = &HostKeyChangedError{Node: h.cfg.Node, Addr: h.cfg.Addr(), Key: key, Want: []KnownKey{{Key: h.shown}}}
		return h.err
	}
	h.err = h.judge(key)
	h.accepted = h.err == nil
	if h.accepted {
		// The connection keeps this callback as long as it is open. Without the known keys, it
		// does not keep its own version of a growing file in memory.
		h.shown, h.knownKeys = key, nil
	}
	return h.err
}

func (h *hostKeys) judge(key ssh.PublicKey) error {
	addr := h.cfg.Addr()
	if len(h.cfg.HostKeys) > 0 {
		var want []KnownKey
		for _, pinned := range h.cfg.HostKeys {
			if bytes.Equal(pinned.Marshal(), key.Marshal()) {
				return nil
			}
			want = append(want, KnownKey{Key: pinned})
		}
		return &HostKeyChangedError{Node: h.cfg.Node, Addr: addr, Key: key, Want: want}
	}
	// Only the name is checked, and not the address, as with CheckHostIP no.
	err := h.db.HostKeyCallback()(h.cfg.knownAs(), &net.TCPAddr{IP: net.IPv4zero}, key)
	var revoked *xknownhosts.RevokedError
	var mismatch *xknownhosts.KeyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &revoked):
		return &HostKeyChangedError{Node: h.cfg.Node, Addr: addr, Key: key, Want: h.want(revoked.Revoked), Revoked: true}
	case !errors.As(err, &mismatch):
		return failure.On(h.cfg.Node, fmt.Errorf("check the host key of %s: %w", addr, err))
	case len(mismatch.Want) > 0:
		return &HostKeyChangedError{Node: h.cfg.Node, Addr: addr, Key: key, Want: h.want(mismatch.Want...)}
	case h.accept:
		return h.add(key)
	}
	return &HostKeyUnknownError{Node: h.cfg.Node, Addr: addr, Key: key, Files: slices.Concat(h.cfg.KnownHosts, h.cfg.GlobalKnownHosts)}
}

func (k *knownKeys) want(keys ...xknownhosts.KnownKey) []KnownKey {
	out := make([]KnownKey, len(keys))
	for i, key := range keys {
		file := key.Filename
		if name, ok := k.names[file]; ok {
			file = name
		}
		out[i] = KnownKey{File: file, Line: key.Line, Key: key.Key}
	}
	return out
}

// add appends the key to the first known_hosts file. Under the lock it reads
// the file again, since another connection may have added a key for this host.
// A file is never rewritten: it may be a link into the user's dotfiles.
func (h *hostKeys) add(key ssh.PublicKey) error {
	if len(h.cfg.KnownHosts) == 0 {
		return nil // UserKnownHostsFile none: accept without writing
	}
	name := h.cfg.KnownHosts[0]
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return failure.On(h.cfg.Node, fmt.Errorf("save the host key: %w", err))
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return failure.On(h.cfg.Node, fmt.Errorf("save the host key: %w", err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err // /dev/null: nothing can be added
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return failure.On(h.cfg.Node, fmt.Errorf("lock %s: %w", name, err))
	}
	again := &hostKeys{cfg: h.cfg, known: h.known}
	if err := again.load(); err != nil {
		return err
	}
	err = again.judge(key)
	var unknown *HostKeyUnknownError
	if !errors.As(err, &unknown) {
		return err // known by now, or changed
	}
	if err := appendLine(f, h.line(key)); err != nil {
		return failure.On(h.cfg.Node, fmt.Errorf("save the host key in %s: %w", name, err))
	}
	return nil
}

func (h *hostKeys) line(key ssh.PublicKey) string {
	host := knownhosts.Normalize(h.cfg.knownAs())
	if h.cfg.HashKnownHosts {
		return xknownhosts.HashHostname(host) + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	}
	return knownhosts.Line([]string{h.cfg.knownAs()}, key)
}

// appendLine adds a line with one write. If only a part was written, it truncates the file again.
func appendLine(f *os.File, line string) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	line += "\n"
	if end > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], end-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = "\n" + line
		}
	}
	if _, err := f.WriteString(line); err != nil {
		return errors.Join(err, f.Truncate(end))
	}
	return f.Sync()
}
