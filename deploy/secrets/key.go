package secrets

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/nixbench/nixbench/nixeval"
)

// When selects keys by their uploadAt: before the activation, after the activation, or both.
type When int

const (
	All When = iota
	Pre
	Post
)

const preActivation = "pre-activation" // a value of uploadAt

// selects reports whether a key belongs to the selection.
func (w When) selects(k Key) bool { return w == All || (w == Pre) == k.Early }

// Key is one of a node's keys, with its content.
type Key struct {
	Name  string // the attribute's name
	Path  string // on the node
	User  string
	Group string
	Mode  string // octal, without leading zeros
	Early bool   // uploaded before the activation

	// content returns the secret. It is a function, so that printing the struct does not show the
	// secret.
	content func() []byte
}

// Set is the desired keys of a node.
type Set struct {
	Node string
	When When
	Keys []Key

	// KeepOld makes an upload keep keys on the node that the hive no longer has, because a system that the node runs or boots
	// may need them.
	KeepOld bool

	// Restart makes an upload restart the services in restartUnits of a key that have read another key than the one on the
	// disk. An upload before a switch leaves this to the switch.
	Restart bool

	Aside Aside // how long the node keeps a backup of the keys that the upload replaces or removes

	hivePaths []string // paths of all keys that the node has in the hive, those before and those after the activation
}

func (k Key) hash() string {
	sum := sha256.Sum256(k.content())
	return hex.EncodeToString(sum[:])
}

// newKey returns a key without its content. Its errors name the invalid option.
func newKey(name string, k nixeval.Key) (Key, error) {
	at, mode, err := k.Check(name)
	if err != nil {
		return Key{}, err
	}
	return Key{Name: name, Path: at, User: k.User, Group: k.Group,
		Mode: strconv.FormatUint(mode, 8), Early: k.UploadAt == preActivation}, nil
}

// At returns a set with only the keys that `when` selects, such as those before the activation. So a caller can load all keys
// before the first upload.
func (s Set) At(when When) Set {
	part := s
	part.When, part.Keys = when, nil
	for _, k := range s.Keys {
		if when.selects(k) {
			part.Keys = append(part.Keys, k)
		}
	}
	return part
}
