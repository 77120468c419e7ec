package secrets

import (
	"crypto/sha256"
	"fmt"
	"strconv"

	"github.com/nixbench/nixbench/nixeval"
)

// When selects keys by their option uploadAt: those that are uploaded before the activation, after the activation, or both.
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

	// content returns the content of the key, which is secret. It is a function, so that printing the struct does not show the
	// content.
	content func() []byte
}

// Set is the desired keys of a node.
type Set struct {
	Node string
	When When
	Keys []Key

	// KeepOld makes an upload keep the keys on the node that the hive no longer has, because the system that the node runs or
	// boots may need these keys.
	KeepOld bool

	// Restart makes an upload restart a service in restartUnits of a key, if the service has read another version of the key than
	// the one on the disk. In an upload before a switch, Restart is false, because the switch restarts these services.
	Restart bool

	Aside Aside // how long the node keeps a backup of the keys that the upload replaces or removes

	hivePaths []string // paths of all keys that the node has in the hive, those before and those after the activation
}

func (k Key) hash() string { return fmt.Sprintf("%x", sha256.Sum256(k.content())) }

// newKey converts a valid key of the hive to a Key without content.
func newKey(name string, k nixeval.Key) Key {
	return Key{Name: name, Path: k.PathOnNode(), User: k.User, Group: k.Group,
		Mode: strconv.FormatUint(k.Mode(), 8), Early: k.UploadAt == preActivation}
}

// At returns a set with only the keys that `when` selects, such as those before the activation. So a caller can load all keys
// before the first upload, and then upload them in parts.
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
