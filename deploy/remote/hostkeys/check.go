package hostkeys

import (
	"bytes"
	"cmp"
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
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// Checker checks the key that a host shows. If there are pinned keys, only pinned keys are accepted. Otherwise the key
// must be in a known_hosts file; an unknown key is refused, or, if accept is set, added to the first file.
type Checker struct {
	cfg        sshconfig.Config
	accept     bool
	known      *KnownHosts
	*knownKeys // the content of the files

	acceptedKey ssh.PublicKey // the key that the callback has accepted
	Accepted    bool          // Check has accepted a key
	Err         error         // why Check has refused a key; x/crypto returns only the error's text
}

// NewChecker returns the Checker of a host. It reads the known_hosts files, unless the keys of the host are pinned. If accept is set,
// the Checker accepts and saves unknown keys.
func NewChecker(cfg sshconfig.Config, accept bool, known *KnownHosts) (*Checker, error) {
	h := &Checker{cfg: cfg, accept: accept, known: known}
	if len(cfg.HostKeys) > 0 {
		return h, nil
	}
	return h, h.load(false)
}

// load reads the known_hosts files. With again, it reads them also if they were read before.
func (h *Checker) load(again bool) (err error) {
	if h.knownKeys, err = h.known.read(slices.Concat(h.cfg.KnownHosts, h.cfg.GlobalKnownHosts), again); err != nil {
		return failure.On(h.cfg.Node, fmt.Errorf("read known hosts: %w", err))
	}
	return nil
}

// Algorithms returns the host key algorithms in the order of preference. The algorithms of known
// keys are first, so that a server with several keys shows a known key. The other algorithms follow,
// so that a changed key is reported as changed and not as a failed negotiation.
func (h *Checker) Algorithms() []string {
	var all []string
	for _, key := range h.cfg.HostKeys {
		if key.Type() == ssh.KeyAlgoRSA {
			all = append(all, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			all = append(all, key.Type())
		}
	}
	if len(h.cfg.HostKeys) == 0 {
		all = h.db.HostKeyAlgorithms(h.cfg.KnownHostsName())
	}
	// Without a known certificate authority, a certificate cannot be verified. If the certificate algorithms stayed
	// in the list, the server would show a certificate instead of its plain key.
	acceptsCertificates := len(h.cfg.HostKeys) == 0 &&
		slices.ContainsFunc(h.db.HostKeys(h.cfg.KnownHostsName()), func(k knownhosts.PublicKey) bool { return k.Cert })
	for _, a := range ssh.SupportedAlgorithms().HostKeys {
		if !slices.Contains(all, a) && (acceptsCertificates || !strings.Contains(a, "-cert-v01@")) {
			all = append(all, a)
		}
	}
	return all
}

// Check returns an error if the host's key is not accepted. It is the ssh.HostKeyCallback.
func (h *Checker) Check(_ string, _ net.Addr, key ssh.PublicKey) error {
	if h.acceptedKey != nil && bytes.Equal(h.acceptedKey.Marshal(), key.Marshal()) {
		return nil // a later key exchange of the same connection: the first key exchange has checked the key
	}
	if h.acceptedKey != nil {
		h.Err = newChangedError(h.cfg, key, xknownhosts.KnownKey{Key: h.acceptedKey})
		return h.Err
	}
	h.Err = h.compareKey(key)
	h.Accepted = h.Err == nil
	if h.Accepted {
		// An open connection keeps this callback and its data in memory. The known keys are
		// removed, since they would be a separate copy of the files for each connection.
		h.acceptedKey, h.knownKeys = key, nil
	}
	return h.Err
}

// compareKey compares a host's key with the pinned keys or the known_hosts files. It returns nil if the
// key is accepted, and saves an unknown key if accept is set.
func (h *Checker) compareKey(key ssh.PublicKey) error {
	if len(h.cfg.HostKeys) > 0 {
		var pinned []xknownhosts.KnownKey
		for _, k := range h.cfg.HostKeys {
			if bytes.Equal(k.Marshal(), key.Marshal()) {
				return nil
			}
			pinned = append(pinned, xknownhosts.KnownKey{Key: k})
		}
		return newChangedError(h.cfg, key, pinned...)
	}
	// Like ssh with "CheckHostIP no", check only the host's name and not its IP address.
	err := h.db.HostKeyCallback()(h.cfg.KnownHostsName(), &net.TCPAddr{IP: net.IPv4zero}, key)
	var revoked *xknownhosts.RevokedError
	var mismatch *xknownhosts.KeyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &revoked):
		by := h.withOriginalName(revoked.Revoked)
		return &ChangedError{failure.About{Node: h.cfg.Node, Text: fmt.Sprintf("the host key of %s is revoked: %s, see %s:%d", h.cfg.Addr(), describeKey(key), by.Filename, by.Line)}}
	case !errors.As(err, &mismatch):
		return failure.On(h.cfg.Node, fmt.Errorf("check the host key of %s: %w", h.cfg.Addr(), err))
	case len(mismatch.Want) > 0:
		for i, k := range mismatch.Want {
			mismatch.Want[i] = h.withOriginalName(k)
		}
		return newChangedError(h.cfg, key, mismatch.Want...)
	case h.accept:
		return h.saveKey(key)
	}
	return newUnknownError(h.cfg, key)
}

// withOriginalName returns a key with the path of the original file, if the key was read from a temporary copy of the file.
func (k *knownKeys) withOriginalName(key xknownhosts.KnownKey) xknownhosts.KnownKey {
	key.Filename = cmp.Or(k.names[key.Filename], key.Filename)
	return key
}

// saveKey appends the key to the first known_hosts file. It locks the file and reads the file again, since another connection may have
// added a key for this host. It never replaces the file, because the file may be a link to a file in another folder.
func (h *Checker) saveKey(key ssh.PublicKey) error {
	if len(h.cfg.KnownHosts) == 0 {
		return nil // the key is accepted and not saved, because UserKnownHostsFile is none
	}
	name := h.cfg.KnownHosts[0]
	err := os.MkdirAll(filepath.Dir(name), 0o700)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	}
	if err != nil {
		return failure.On(h.cfg.Node, fmt.Errorf("save the host key: %w", err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err // nil for a device such as /dev/null: the key is accepted and not saved
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return failure.On(h.cfg.Node, fmt.Errorf("lock %s: %w", name, err))
	}
	again := &Checker{cfg: h.cfg, known: h.known}
	if err := again.load(true); err != nil {
		return err
	}
	err = again.compareKey(key)
	if !errors.As(err, new(*UnknownError)) {
		return err // nothing to save: another connection has added this key or another key of the host
	}
	if err := appendLine(f, h.formatLine(key)); err != nil {
		return failure.On(h.cfg.Node, fmt.Errorf("save the host key in %s: %w", name, err))
	}
	return again.load(true) // for later connections
}

func (h *Checker) formatLine(key ssh.PublicKey) string {
	host := knownhosts.Normalize(h.cfg.KnownHostsName())
	if h.cfg.HashKnownHosts {
		return xknownhosts.HashHostname(host) + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	}
	return knownhosts.Line([]string{h.cfg.KnownHostsName()}, key)
}

// appendLine appends a line with one write. If the last line of the file has no line end, it adds that line end, too.
func appendLine(f *os.File, line string) error {
	end, err := f.Seek(0, io.SeekEnd)
	last := []byte{'\n'}
	if err == nil && end > 0 {
		_, err = f.ReadAt(last, end-1)
	}
	if last[0] != '\n' {
		line = "\n" + line
	}
	if err == nil {
		_, err = f.WriteString(line + "\n")
	}
	return err
}
