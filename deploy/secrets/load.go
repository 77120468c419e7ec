package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval"
)

// Runner runs a local program and returns its stdout; its error carries the
// program's stderr. It is the one way in which this package starts programs.
type Runner func(ctx context.Context, argv ...string) ([]byte, error)

// Load reads a node's keys and runs their commands. Every key is checked, those
// of the other half too, before the first command runs; all complaints come
// together.
//
// A keyCommand runs once for each key and each node, one after another, as in
// Colmena: two keys from `openssl rand` shall differ.
func (u *Uploader) Load(ctx context.Context, node string, d nixeval.Deployment, when When) (Set, error) {
	set := Set{Node: node, When: when}
	var errs []error
	complain := func(name string, err error) {
		errs = append(errs, fmt.Errorf("%s.deployment.keys.%s: %w", node, name, err))
	}
	owner := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(d.Keys)) {
		source := d.Keys[name]
		key, err := newKey(name, source)
		if err == nil {
			err = checkSource(source)
		}
		if err == nil && owner[key.Path] != "" {
			err = fmt.Errorf("it has the same path as the key %s, %s; change its name or destDir", owner[key.Path], key.Path)
		}
		if err != nil {
			complain(name, err)
			continue
		}
		owner[key.Path] = name
		set.keep = append(set.keep, key.Path)
		if when.has(source.UploadAt) {
			set.Keys = append(set.Keys, key)
		}
	}
	if len(errs) > 0 {
		return Set{}, errors.Join(errs...)
	}
	for i, key := range set.Keys {
		content, err := u.waitedContent(ctx, node, key.Name, d.Keys[key.Name])
		if ctx.Err() != nil {
			return Set{}, fmt.Errorf("%s.deployment.keys.%s: %w", node, key.Name, context.Cause(ctx))
		}
		if err != nil {
			complain(key.Name, err)
			continue
		}
		set.Keys[i].content = func() []byte { return content }
	}
	if len(errs) > 0 {
		return Set{}, errors.Join(errs...)
	}
	return set, nil
}

func checkSource(k nixeval.Key) error {
	var has []string
	if k.Text != nil {
		has = append(has, "text")
	}
	if k.KeyFile != nil {
		has = append(has, "keyFile")
	}
	if len(k.KeyCommand) > 0 {
		has = append(has, "keyCommand")
	}
	if k.Generated != nil {
		has = append(has, "generated")
	}
	switch len(has) {
	case 0:
		return errors.New("it has no source; set one of text, keyFile, keyCommand and generated")
	case 1:
		return nil
	}
	return fmt.Errorf("%s are set; keep one of them", strings.Join(has, " and "))
}

// waitedContent is content, and reports the command if it takes long.
func (u *Uploader) waitedContent(ctx context.Context, node, name string, k nixeval.Key) ([]byte, error) {
	if len(k.KeyCommand) > 0 {
		wait := u.Send.Wait(event.Event{Node: node, Phase: event.Keys, Until: time.Now().Add(keyTimeout),
			Text: fmt.Sprintf("deployment.keys.%s.keyCommand: %s", name, k.KeyCommand[0])})
		defer wait.End()
	}
	return u.content(ctx, k)
}

// content gets the key itself. Its errors name the source, but only the program
// of a command: arguments may be secret.
func (u *Uploader) content(ctx context.Context, k nixeval.Key) ([]byte, error) {
	switch {
	case k.Text != nil:
		return []byte(k.Text.Reveal()), nil
	case k.Generated != nil:
		if u.Generated == nil {
			return nil, errors.New("generated: this command makes no secrets; use nixbench apply")
		}
		return u.Generated(*k.Generated)
	case k.KeyFile != nil:
		if !filepath.IsAbs(*k.KeyFile) {
			return nil, fmt.Errorf("keyFile: %q is not an absolute path", *k.KeyFile)
		}
		content, err := os.ReadFile(*k.KeyFile)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("keyFile: %s does not exist on this machine; create it, or use keyCommand", *k.KeyFile)
		}
		if err != nil {
			return nil, fmt.Errorf("keyFile: %w", err)
		}
		return content, nil
	}
	run := u.Runner
	if run == nil {
		run = Exec
	}
	content, err := run(ctx, k.KeyCommand...)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("keyCommand: %s is not installed, or not on PATH", k.KeyCommand[0])
	}
	if err != nil {
		return nil, fmt.Errorf("keyCommand: %s failed: %w", k.KeyCommand[0], err)
	}
	return content, nil
}

// keyTimeout bounds a keyCommand: it may ask somebody for a passphrase.
const keyTimeout = 5 * time.Minute

// Exec is the real Runner. The program has no stdin: one that asks for a passphrase
// opens the terminal itself. What it prints on stderr is not kept: it could be part
// of a secret, and errors are recorded.
func Exec(ctx context.Context, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	switch {
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() == context.DeadlineExceeded:
		return nil, fmt.Errorf("it did not end within %v", keyTimeout)
	case errors.Is(err, exec.ErrNotFound):
		return nil, err
	}
	return nil, fmt.Errorf("%w; run it by hand to see why", err)
}
