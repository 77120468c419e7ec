package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/modules"
)

// The folder beside hive.nix into which init copies the modules, and the file in it that records the copies.
const (
	modulesFolder = "modules"
	copiesFile    = ".nixbench.json"
)

// moduleCopies records which modules init has copied, so that init --update can tell the files that the user has changed.
type moduleCopies struct {
	Version string       `json:"version"` // of the nixbench that copied them
	Digest  string       `json:"digest"`  // of the modules in that version
	Files   modules.Sums `json:"files"`
}

// newModuleCopies returns the record of a copy of this program's modules.
func newModuleCopies() (moduleCopies, error) {
	sums, err := modules.OwnSums()
	return moduleCopies{Version: readBuildVersion().Version, Digest: sums.Digest(), Files: sums}, err
}

func (c moduleCopies) encode() ([]byte, error) {
	text, err := json.MarshalIndent(c, "", "  ")
	return append(text, '\n'), err
}

// readModuleCopies reads the record in a folder of modules. Without a record, the error wraps [fs.ErrNotExist].
func readModuleCopies(folder string) (moduleCopies, error) {
	file := filepath.Join(folder, copiesFile)
	var c moduleCopies
	text, err := durable.Read(file, durable.ConfigSize)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, failure.WithHint(fmt.Errorf("%s: %w", file, err), "remove the file; nixbench init --update writes a new one")
	}
	for path := range c.Files {
		if !filepath.IsLocal(filepath.FromSlash(path)) {
			return c, newUsageError("%s: %q is not a file in the folder", file, path)
		}
	}
	return c, nil
}

// moduleUpdate is what init --update would change in a folder of modules.
type moduleUpdate struct {
	write, remove []string
	kept          []string // files that the user has changed
	record        moduleCopies
}

// planModuleUpdate compares the files in the folder with the record of the last copy and with this program's modules. A file that
// differs from both was changed by the user, and is kept.
func planModuleUpdate(folder string, recorded moduleCopies) (moduleUpdate, error) {
	own, err := newModuleCopies()
	if err != nil {
		return moduleUpdate{}, err
	}
	u := moduleUpdate{record: own}
	all := modules.Sums{}
	for path := range own.Files {
		all[path] = own.Files[path]
	}
	for path := range recorded.Files {
		if _, ok := all[path]; !ok {
			all[path] = "" // this version does not have it
		}
	}
	for _, path := range sortedNames(all) {
		file := filepath.Join(folder, filepath.FromSlash(path))
		now := ""
		info, err := os.Lstat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return u, err
		case !info.Mode().IsRegular():
			now = "not a file" // such as a link, which is the user's
		default:
			content, err := durable.Read(file, durable.ConfigSize)
			if err != nil {
				return u, err
			}
			now = modules.Sum(content)
		}
		switch {
		case now == all[path]:
		case now != "" && now != recorded.Files[path]:
			u.kept = append(u.kept, path)
			if before, ok := recorded.Files[path]; ok {
				u.record.Files[path] = before
			}
		case all[path] == "":
			u.remove = append(u.remove, path)
		default:
			u.write = append(u.write, path)
		}
	}
	return u, nil
}

// apply changes the folder. Each file is replaced atomically, and the record at the end, so that init --update completes
// the update if it was interrupted.
func (u moduleUpdate) apply(folder string) error {
	for _, path := range u.write {
		content, err := modules.Files.ReadFile(path)
		if err != nil {
			return err
		}
		file := filepath.Join(folder, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := durable.WriteShared(file, content); err != nil {
			return err
		}
	}
	for _, path := range u.remove {
		if err := os.Remove(filepath.Join(folder, filepath.FromSlash(path))); err != nil {
			return err
		}
	}
	text, err := u.record.encode()
	if err != nil {
		return err
	}
	file := filepath.Join(folder, copiesFile)
	if now, err := durable.Read(file, durable.ConfigSize); err == nil && string(now) == string(text) {
		return nil
	}
	return durable.WriteShared(file, text)
}

// updateModules renews the copies of nixbench's modules in a folder that init has written.
func (a *app) updateModules(dir string) error {
	folder := filepath.Join(dir, modulesFolder)
	if info, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return failure.WithHint(newUsageError("init: there is no %s, so there is nothing to update", folder),
			"a flake gets the modules from its input: nix flake update nixbench")
	} else if err != nil {
		return err
	} else if !info.IsDir() {
		return newUsageError("init: %s is not a folder", folder)
	}
	recorded, err := readModuleCopies(folder)
	unrecorded := errors.Is(err, fs.ErrNotExist)
	if err != nil && !unrecorded {
		return err
	}
	update, err := planModuleUpdate(folder, recorded)
	if err != nil {
		return err
	}
	if err := update.apply(folder); err != nil {
		return failure.WithHint(err, "run nixbench init --update again, which completes the update")
	}
	if len(update.kept) > 0 {
		why := "because they were changed after nixbench wrote them"
		if unrecorded {
			why = "because " + filepath.Join(folder, copiesFile) + " does not record who wrote them"
		}
		a.sendEvent(event.Event{Kind: event.Message, Level: "warning", Time: time.Now(),
			Text: fmt.Sprintf("kept in %s, %s: %s; to get the new version of a file, remove it and run nixbench init --update", folder, why, strings.Join(update.kept, ", "))})
	}
	a.showModuleUpdate(folder, update)
	return nil
}

func (a *app) showModuleUpdate(folder string, u moduleUpdate) {
	v := struct {
		Dir     string   `json:"dir"`
		Updated []string `json:"updated"`
		Removed []string `json:"removed"`
		Kept    []string `json:"kept"`
	}{folder, append([]string{}, u.write...), append([]string{}, u.remove...), append([]string{}, u.kept...)}
	a.view.Result(v, func(w io.Writer) {
		for _, path := range u.write {
			fmt.Fprintln(w, "updated "+filepath.Join(folder, path))
		}
		for _, path := range u.remove {
			fmt.Fprintln(w, "removed "+filepath.Join(folder, path))
		}
		if len(u.write)+len(u.remove) == 0 {
			fmt.Fprintln(w, "nothing to update")
			return
		}
		fmt.Fprint(w, "\nnext: nixbench plan\n")
	})
}
