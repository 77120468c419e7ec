package secrets

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval"
)

// Load reads a node's keys and runs the commands (keyCommand) that print keys. Before the first command runs, it checks all keys,
// also those that the argument `when` does not select, and reports all errors together.
//
// A keyCommand runs once for each key and each node, one after another, as in Colmena: two keys from `openssl rand` must differ.
func (u *Uploader) Load(ctx context.Context, node string, d nixeval.Deployment, when When) (Set, error) {
	set := Set{Node: node, When: when}
	if err := nixeval.CheckKeys(node+".", d.Keys); err != nil { // an invalid key is usually reported earlier, by the evaluation of the hive
		return Set{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(d.Keys)) {
		key := newKey(name, d.Keys[name])
		set.hivePaths = append(set.hivePaths, key.Path)
		if when.selects(key) {
			set.Keys = append(set.Keys, key)
		}
	}
	var errs []error
	for i, key := range set.Keys {
		content, err := u.readContent(ctx, node, key.Name, d.Keys[key.Name])
		if ctx.Err() != nil {
			return Set{}, fmt.Errorf("%s.deployment.keys.%s: %w", node, key.Name, context.Cause(ctx))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.deployment.keys.%s: %w", node, key.Name, err))
		}
		set.Keys[i].content = func() []byte { return content }
	}
	if len(errs) > 0 {
		return Set{}, errors.Join(errs...)
	}
	return set, nil
}

// readContent returns the content of a key from its source, such as a file. An error about a keyCommand contains only the name of
// the program, because arguments may be secret.
func (u *Uploader) readContent(ctx context.Context, node, name string, k nixeval.Key) ([]byte, error) {
	switch {
	case k.Text != nil:
		return []byte(k.Text.Reveal()), nil
	case k.Generated != nil:
		if u.Generated == nil {
			return nil, errors.New("generated: this command makes no secrets; use nixbench apply")
		}
		return u.Generated(*k.Generated)
	case k.KeyFile != nil:
		content, err := durable.Read(*k.KeyFile, durable.KeySize)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("keyFile: %s does not exist on this machine; create it, or use keyCommand", *k.KeyFile)
		}
		if err != nil {
			return nil, fmt.Errorf("keyFile: %w", err)
		}
		return content, nil
	}
	wait := u.Send.Wait(event.Event{Node: node, Phase: event.Keys, Until: time.Now().Add(keyTimeout),
		Text: fmt.Sprintf("deployment.keys.%s.keyCommand: %s", name, k.KeyCommand[0])})
	defer wait.End()
	run := u.runner
	if run == nil {
		run = runProgram
	}
	content, err := run(ctx, k.KeyCommand...)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("keyCommand: %s is not installed, or not on PATH", k.KeyCommand[0])
	case err != nil:
		return nil, fmt.Errorf("keyCommand: %s failed: %w", k.KeyCommand[0], err)
	}
	return content, nil
}

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
