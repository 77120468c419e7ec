package secrets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
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
