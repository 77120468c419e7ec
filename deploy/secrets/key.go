package secrets

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

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

const preActivation = "pre-activation" // in uploadAt

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

// newKey is a key without its content. Its errors say which option is wrong.
func newKey(name string, k nixeval.Key) (Key, error) {
	at, mode, err := k.Check(name)
	if err != nil {
		return Key{}, err
	}
	return Key{Name: name, Path: at, User: k.User, Group: k.Group,
		Mode: strconv.FormatUint(mode, 8), Early: k.UploadAt == preActivation}, nil
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
