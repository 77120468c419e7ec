package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"al.essio.dev/pkg/shellescape"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Dir is the path of a cluster's state folder. The folder need not exist.
type Dir string

// Locate returns the state folder of a cluster: in `.nixbench` beside the hive, or under
// $XDG_STATE_HOME if Nix copies the hive's folder into the store.
func Locate(src nixeval.Source, cluster string) (Dir, error) {
	if !src.Copied {
		return Dir(filepath.Join(src.Dir, ".nixbench", cluster)), nil
	}
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("state folder: %w; set XDG_STATE_HOME", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	sum := sha256.Sum256([]byte(src.Dir))
	where := filepath.Base(src.Dir) + "-" + hex.EncodeToString(sum[:6])
	return Dir(filepath.Join(base, "nixbench", where, cluster)), nil
}

// The paths of files and folders. Root is for the closure of an evaluation unit (a node or a role), AccessFile for the credentials of an
// engine's administrator, and ForwardFolder for those that exist while nixbench forwards the API of a cluster to this computer.

func (d Dir) stateFile() string             { return filepath.Join(string(d), "state.json") }
func (d Dir) lockFile() string              { return filepath.Join(string(d), "lock") }
func (d Dir) Root(unit string) string       { return filepath.Join(string(d), "gcroots", unit) }
func (d Dir) Facts() string                 { return filepath.Join(string(d), "runtime.json") }
func (d Dir) ClientKey() string             { return filepath.Join(string(d), "secrets", "id_ed25519") }
func (d Dir) KnownHosts() string            { return filepath.Join(string(d), "known_hosts") }
func (d Dir) Vault() string                 { return filepath.Join(string(d), "secrets", "generated") }
func (d Dir) AccessFile(name string) string { return filepath.Join(string(d), name) }
func (d Dir) ForwardFolder() string         { return filepath.Join(string(d), "secrets", "forward") }

// Create creates the folder with access for its owner only, and a .gitignore that matches it. It verifies an existing folder first.
func (d Dir) Create() error {
	if err := d.Verify(); err != nil { // verify the folder before nixbench creates files in it
		return err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return d.Error(err)
	}
	ignore := filepath.Join(filepath.Dir(string(d)), ".gitignore")
	f, err := os.OpenFile(ignore, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) // with O_EXCL, a symbolic link is not followed
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		_, err = f.WriteString("*\n")
		err = errors.Join(err, f.Close())
	}
	return d.Error(err)
}

// Error adds the folder to err. It returns nil for nil.
func (d Dir) Error(err error) error {
	if err == nil {
		return nil
	}
	return failure.WithHint(failure.WithKind(failure.StateFolder, fmt.Errorf("state folder %s: %w", d, err)),
		"it must be on a local disk with free space, and writable by the user who runs nixbench")
}

func (d Dir) Write(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return d.Error(err)
	}
	return d.Error(durable.Write(file, data))
}

func (d Dir) Remove(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return d.Error(err)
	}
	return nil
}

// WriteFacts writes runtime.json and known_hosts, if their content would change.
func (d Dir) WriteFacts(runtime []byte, machines map[string]Machine) error {
	var known strings.Builder
	for _, node := range slices.Sorted(maps.Keys(machines)) {
		if key := machines[node].HostKey; key != "" {
			fmt.Fprintf(&known, "%s %s\n", node, key)
		}
	}
	if err := d.Create(); err != nil {
		return err
	}
	for file, data := range map[string][]byte{d.Facts(): runtime, d.KnownHosts(): []byte(known.String())} {
		if old, err := durable.Read(file, durable.ConfigSize); err == nil && bytes.Equal(old, data) {
			continue
		}
		if err := d.Write(file, data); err != nil {
			return err
		}
	}
	return nil
}

// RemoveFacts deletes runtime.json and known_hosts. It is called when there are no machines.
func (d Dir) RemoveFacts() error { return errors.Join(d.Remove(d.Facts()), d.Remove(d.KnownHosts())) }

// Verify checks that no other user can have written to the state folder, because its contents decide which machines are removed and
// which host keys are accepted. It returns an error if the folder, or the folder with the state folders of all clusters, does not
// belong to the current user, to root, or to the owner of the hive's folder, or if other users can write to it. If other users can read
// the state folder, Verify removes their access. A state folder that is missing or unreadable is no error.
func (d Dir) Verify() error {
	top := filepath.Dir(string(d))
	owners := []int{0, os.Geteuid()}
	if info, err := os.Stat(filepath.Dir(top)); err == nil {
		owners = append(owners, ownerOf(info)) // the owner of the hive's folder can replace the hive and the state folder anyway
	}
	err := verifyFolder(top, owners)
	if err == nil {
		err = verifyFolder(string(d), owners)
	}
	if info, statErr := os.Stat(string(d)); err == nil && statErr == nil && info.Mode().Perm()&0o077 != 0 {
		err = os.Chmod(string(d), info.Mode().Perm()&^0o077)
	}
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil
	case failure.KindOf(err) == failure.Usage:
		return err
	}
	return d.Error(err)
}

// verifyFolder returns an error of the kind Usage if a folder does not belong to one of the owners, or if other users can write to it. The path may
// be a symbolic link of an owner, so that the folder can be on another disk.
func verifyFolder(path string, owners []int) error {
	for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := stat(path)
		if err != nil {
			return err
		}
		isLink := info.Mode().Type() == fs.ModeSymlink
		var why, fix string
		switch owner := ownerOf(info); {
		case !isLink && !info.IsDir():
			why, fix = "it is not a folder", "nixbench did not make it; find out who did, and remove it"
		case !slices.Contains(owners, owner):
			why = fmt.Sprintf("it belongs to user %d, and user %d runs nixbench", owner, os.Geteuid())
			fix = fmt.Sprintf("run nixbench as that user; or, if you know that everything in it is yours: chown -R %d %s", os.Geteuid(), shellescape.Quote(path))
		case !isLink && info.Mode().Perm()&0o022 != 0:
			why = fmt.Sprintf("other users can write to it (mode %04o), so that it may not be what nixbench wrote", info.Mode().Perm())
			fix = "if no other user can have changed it: chmod -R go-rwx " + shellescape.Quote(path) + "; on a file system where chmod has no effect, nixbench cannot be used"
		default:
			continue
		}
		return failure.WithHint(failure.NewUsage("%s is not used: %s", path, why), fix)
	}
	return nil
}

func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
