// Package vault generates and stores secrets: tokens, certificates of a cluster's certificate authorities, signing keys, encryption
// keys. They are generated before any machine boots, so that the evaluation of systems knows their public parts, such as the hash of
// a CA's public key.
//
// The hive's modules define the secrets: a key of deployment.keys whose source is `generated` contains the name of a secret, its
// kind, and the part of it that the node gets. The vault generates a secret on first use.
//
// A secret is one file, written atomically, in a folder that only its owner can read. Only the holder of the state's lock may
// generate secrets.
package vault

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Vault is a folder in which nixbench stores the secrets that it has generated.
type Vault struct {
	// ReadOnly means that newly generated secrets are kept in memory and not written to the folder.
	ReadOnly bool

	dir string

	mu    sync.Mutex
	cache map[string]*secret
}

// Open returns the vault in dir. The folder is created when the first secret is written.
func Open(dir string) *Vault { return &Vault{dir: dir, cache: map[string]*secret{}} }

// secret is one file of the vault.
type secret struct {
	Kind  string            `json:"kind"`
	Bytes int               `json:"bytes,omitempty"`
	Made  time.Time         `json:"made"`
	Parts map[string][]byte `json:"parts"`
}

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)

const suffix = ".json"

// Part returns one part of a secret, such as the certificate of a certificate authority. If the secret does not exist, Part
// generates it.
func (v *Vault) Part(g nixeval.Generated) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if g.Kind != "random" && g.Kind != "key-ring" {
		g.Bytes = 0 // secrets of other kinds have no size
	}
	s, err := v.load(g.Secret)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s, err = v.generateSecret(g)
	case err == nil && (s.Kind != g.Kind || s.Bytes != g.Bytes):
		err = fmt.Errorf("generated: the secret %s is of the kind %s already, and cannot be of the kind %s; give one of them another name, or, if no node uses it, remove %s to have a new one made",
			g.Secret, describeKind(s.Kind, s.Bytes), describeKind(g.Kind, g.Bytes), v.file(g.Secret))
	}
	if err != nil {
		return nil, err
	}
	part, ok := s.Parts[g.Part]
	if !ok {
		return nil, fmt.Errorf("generated: a secret of the kind %s has no part %q; it has %s",
			s.Kind, g.Part, strings.Join(slices.Sorted(maps.Keys(s.Parts)), ", "))
	}
	return part, nil
}

func describeKind(kind string, bytes int) string {
	if bytes == 0 {
		return kind
	}
	return fmt.Sprintf("%s of %d bytes", kind, bytes)
}

func (v *Vault) file(name string) string { return filepath.Join(v.dir, name+suffix) }

// load returns the secret with this name from memory, or reads it from its file. The error is fs.ErrNotExist if there is no file.
func (v *Vault) load(name string) (*secret, error) {
	if s := v.cache[name]; s != nil {
		return s, nil
	}
	if !nameRE.MatchString(name) {
		return nil, failure.NewUsage("generated: %q is no name for a secret; use letters, digits, `_`, `.` and `-`", name)
	}
	file := v.file(name)
	data, err := durable.Read(file, durable.KeySize)
	if err != nil {
		return nil, err
	}
	var s secret
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%s: it is damaged; restore it from a backup, or from a node, which has each part at the path of its key. Remove it only if no node uses the secret: a new one is made, and nodes do not accept that in place of the old one", file)
	}
	v.cache[name] = &s
	return &s, nil
}

func (v *Vault) generateSecret(g nixeval.Generated) (*secret, error) {
	parts, err := generateParts(g)
	if err != nil {
		return nil, fmt.Errorf("generated: the secret %s: %w", g.Secret, err)
	}
	return v.write(g, parts)
}

// write writes a secret with new parts to its file. In a read-only vault, it only keeps the secret in memory.
func (v *Vault) write(g nixeval.Generated, parts map[string][]byte) (*secret, error) {
	s := &secret{Kind: g.Kind, Bytes: g.Bytes, Made: time.Now().UTC().Truncate(time.Second), Parts: parts}
	if !v.ReadOnly {
		data, _ := json.Marshal(s) // never fails
		err := os.MkdirAll(v.dir, 0o700)
		if err == nil {
			err = durable.Write(v.file(g.Secret), data)
		}
		if err != nil {
			return nil, failure.WithKind(failure.StateFolder, fmt.Errorf("secrets: %w", err))
		}
	}
	v.cache[g.Secret] = s
	return s, nil
}

// Step is what Rotate has done in the rotation of a secret. A key ring is rotated in two steps, Added and Turned.
type Step string

const (
	Renewed Step = "renewed" // the secret was generated again
	Added   Step = "added"   // a key was added to a key ring; it does not encrypt yet
	Turned  Step = "turned"  // the newest key of the key ring is the active one now, which encrypts
)

// Rotate generates a secret again. For a key ring, it performs the next step of the ring's rotation. It returns a usage error
// for a secret that does not exist, and for a secret on which running nodes depend. Before it activates the new key of a ring, it
// calls `known` with the SHA-256 of the ring's text. `known` returns an error if not all nodes have this text of the ring.
func (v *Vault) Rotate(name string, known func(sum string) error) (Step, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, err := v.load(name)
	if errors.Is(err, fs.ErrNotExist) {
		names, listErr := v.listNames()
		if listErr != nil {
			return "", listErr
		}
		return "", failure.NewUsage("there is no secret %s; there are %s", name, cmp.Or(strings.Join(names, ", "), "none yet"))
	}
	if err != nil {
		return "", err
	}
	g := nixeval.Generated{Secret: name, Kind: s.Kind, Bytes: s.Bytes}
	switch s.Kind {
	case "ca", "key-pair":
		return "", failure.NewUsage("%s is of the kind %s: everything that it has signed would become invalid, and the nodes that trust it would not get the new one; for a cluster with new secrets, destroy this one", name, s.Kind)
	case "key-ring":
		return v.rotateRing(g, s.Parts["keys"], known)
	}
	_, err = v.generateSecret(g)
	return Renewed, err
}

// rotateRing performs the next step in the rotation of a key ring. If the newest key is the active one, it adds a new key.
// Otherwise it makes the newest key the active one, if `known` returns no error.
func (v *Vault) rotateRing(g nixeval.Generated, text []byte, known func(sum string) error) (Step, error) {
	r, step := ring(strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")), Turned
	newest := slices.IndexFunc(r, func(line string) bool { return strings.HasPrefix(line, fmt.Sprintf("key%d ", len(r))) })
	if newest <= 0 {
		raw, err := randomBytes(g.Bytes)
		if err != nil {
			return "", err
		}
		r, step = r.withKey(raw), Added
	} else {
		if err := known(fmt.Sprintf("%x", sha256.Sum256(text))); err != nil {
			return "", err
		}
		r = slices.Concat(r[newest:newest+1], r[:newest], r[newest+1:])
	}
	_, err := v.write(g, map[string][]byte{"keys": r.text()})
	return step, err
}

func (v *Vault) listNames() ([]string, error) {
	entries, err := os.ReadDir(v.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok && nameRE.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Info is the public information about a secret.
type Info struct {
	Name    string     `json:"name"`
	Kind    string     `json:"kind"`
	Made    time.Time  `json:"made"`
	Expires *time.Time `json:"expires,omitempty"`
}

// List returns the information about all generated secrets.
func (v *Vault) List() ([]Info, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	names, err := v.listNames()
	if err != nil {
		return nil, err
	}
	out := []Info{}
	for _, name := range names {
		s, err := v.load(name)
		if err != nil {
			return nil, err
		}
		out = append(out, Info{Name: name, Kind: s.Kind, Made: s.Made, Expires: expiryOf(s)})
	}
	return out, nil
}

// ring is a list of encryption keys. Each line contains a key's name and the key in base64. Data is
// encrypted with the first key, and decrypted with any key. The names are key1, key2, … in the order of
// generation, and never change, because they are stored with the encrypted data.
//
// All nodes must have a key before the first node encrypts with it. A rotation therefore has two steps:
// a new key is added at the end, and later the key is moved to the front. Keys are never removed, since
// data that is encrypted with an old key may still exist.
type ring []string

func (r ring) text() []byte { return []byte(strings.Join(r, "\n") + "\n") }

// withKey returns the ring with a new key at the end.
func (r ring) withKey(key []byte) ring {
	return append(r, fmt.Sprintf("key%d %s", len(r)+1, base64.StdEncoding.EncodeToString(key)))
}
