package secrets

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nixbench/nixbench/nixeval"
)

// When says which keys: those that are there before the new system is activated,
// those that come after it, or both.
type When int

const (
	All When = iota
	Pre
	Post
)

const (
	preActivation  = "pre-activation"
	postActivation = "post-activation"
)

func (w When) has(uploadAt string) bool {
	return w == All || (w == Pre) == (uploadAt == preActivation)
}

// Key is one of a node's keys, with its content.
type Key struct {
	Name  string // the attribute's name
	Path  string // on the node
	User  string
	Group string
	Mode  string // octal, without leading zeros
	Early bool   // pre-activation

	// A function, since printing a struct shows all but what functions hold.
	content func() []byte
}

// Set is what a node should have.
type Set struct {
	Node string
	When When
	Keys []Key

	// KeepOld leaves keys on the node that the hive no longer has: a system that
	// still runs, or still boots, may need them.
	KeepOld bool

	Aside Aside // what becomes of that which an upload replaces or removes

	keep []string // paths of all the node's keys, whatever When is
}

func (k Key) hash() string {
	sum := sha256.Sum256(k.content())
	return hex.EncodeToString(sum[:])
}

// newKey checks everything about a key but its content. Its errors say which
// option is wrong.
func newKey(name string, k nixeval.Key) (Key, error) {
	if err := checkName(k.Name); err != nil {
		return Key{}, fmt.Errorf("name: %w", err)
	}
	if !strings.HasPrefix(k.DestDir, "/") {
		return Key{}, fmt.Errorf("destDir: %q is not an absolute path", k.DestDir)
	}
	at := k.Path
	if at == "" {
		at = k.DestDir + "/" + k.Name
	}
	if !strings.HasPrefix(at, "/") {
		return Key{}, fmt.Errorf("path: %q is not an absolute path", at)
	}
	if hasControl(at) {
		return Key{}, fmt.Errorf("destDir: %q has control characters, or is not UTF-8", at)
	}
	at = path.Clean(at)
	if err := checkName(path.Base(at)); err != nil {
		return Key{}, fmt.Errorf("path: %w", err)
	}
	if strings.HasPrefix(at, "/nix/store/") {
		return Key{}, fmt.Errorf("destDir: %q is in the store, which everybody can read; choose another folder, such as /run/keys", at)
	}
	for option, owner := range map[string]string{"user": k.User, "group": k.Group} {
		if err := checkOwner(owner); err != nil {
			return Key{}, fmt.Errorf("%s: %w", option, err)
		}
	}
	mode, err := strconv.ParseUint(k.Permissions, 8, 32)
	if err != nil || mode > 0o7777 {
		return Key{}, fmt.Errorf(`permissions: %q is not an octal mode, such as "0600"`, k.Permissions)
	}
	if k.UploadAt != preActivation && k.UploadAt != postActivation {
		return Key{}, fmt.Errorf("uploadAt: %q is neither %s nor %s", k.UploadAt, preActivation, postActivation)
	}
	return Key{Name: name, Path: at, User: k.User, Group: k.Group,
		Mode: strconv.FormatUint(mode, 8), Early: k.UploadAt == preActivation}, nil
}

// maxName leaves room for what the name of the temporary file has around it.
const maxName = 200

func checkName(name string) error {
	switch {
	case name == "" || name == "." || name == ".." || strings.Contains(name, "/"):
		return fmt.Errorf("%q is not a file name; use destDir for the folder", name)
	case len(name) > maxName:
		return fmt.Errorf("%q is longer than %d bytes", name, maxName)
	case hasControl(name):
		return fmt.Errorf("%q has control characters, or is not UTF-8", name)
	}
	return nil
}

// checkOwner refuses what chown would read as something else: user:group is one
// word for it, and a dot was once a separator.
func checkOwner(owner string) error {
	if owner == "" || strings.HasPrefix(owner, "-") || strings.HasPrefix(owner, "+") || hasControl(owner) || strings.ContainsAny(owner, ":/, ") {
		return fmt.Errorf("%q is not a name or number", owner)
	}
	return nil
}

func hasControl(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl)
}

// At is the part of a set that belongs to a moment, so that all keys can be loaded
// before anything is changed.
func (s Set) At(when When) Set {
	part := s
	part.When, part.Keys = when, nil
	for _, k := range s.Keys {
		if when == All || k.Early == (when == Pre) {
			part.Keys = append(part.Keys, k)
		}
	}
	return part
}
