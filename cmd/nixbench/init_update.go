package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/modules"
	"github.com/nixbench/nixbench/nixeval"
)

// modulesFolder is the folder beside hive.nix into which init copies the modules.
const modulesFolder = "modules"

// updateModules writes nixbench's modules again into the folder in which init has written them, and shows what it changes.
func (a *app) updateModules(dir string) error {
	folder := filepath.Join(dir, modulesFolder)
	updated, err := modules.Compare(os.DirFS(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return failure.WithHint(newUsageError("init: there is no %s, so there is nothing to update", folder),
			"a flake gets the modules from its input: nix flake update nixbench")
	}
	var changes bytes.Buffer
	for _, path := range updated {
		if err == nil {
			err = writeModule(filepath.Join(folder, filepath.FromSlash(path)), path, &changes)
		}
	}
	if err != nil {
		return err
	}
	v := struct {
		Dir     string   `json:"dir"`
		Updated []string `json:"updated"`
	}{folder, append([]string{}, updated...)}
	a.view.Result(v, func(w io.Writer) {
		if len(updated) == 0 {
			fmt.Fprintln(w, "nothing to update")
			return
		}
		fmt.Fprintf(w, "%s\nupdated %d files in %s\n\nnext: nixbench plan\n", changes.Bytes(), len(updated), folder)
	})
	return nil
}

// writeModule replaces a file by a module of nixbench, and adds the difference to changes.
func writeModule(file, path string, changes *bytes.Buffer) error {
	content, err := modules.Files.ReadFile(path)
	if err != nil {
		return err
	}
	old, err := durable.Read(file, durable.ConfigSize)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	changes.Write(diff.Diff(file, old, "nixbench "+readBuildVersion().Version, content))
	return durable.WriteShared(file, content)
}

// copiedModules returns the folder of modules that init has written beside a hive, or nothing if there is none.
func copiedModules(source nixeval.Source) []string {
	folder := filepath.Join(source.Dir, modulesFolder)
	if source.IsFlake() || !durable.Exists(filepath.Join(folder, "runtime.nix")) || !durable.Exists(filepath.Join(folder, "image.nix")) {
		return nil
	}
	return []string{folder}
}

// importedModules returns the folders of nixbench's modules that the hive's nodes import.
func importedModules(hive *nixeval.Hive) []string {
	var folders []string
	for _, u := range hive.Units {
		if folder := u.Deployment.Modules; folder != nil && !slices.Contains(folders, *folder) {
			folders = append(folders, *folder)
		}
	}
	return folders
}

// warnAboutModules sends a warning for each of the folders whose modules differ from those of this program.
func (a *app) warnAboutModules(source nixeval.Source, folders []string) {
	for _, folder := range folders {
		differ, err := modules.Compare(os.DirFS(folder))
		if len(differ) == 0 || errors.Is(err, fs.ErrNotExist) { // some versions of Nix do not write a flake's input into the store
			continue
		}
		advice := "use the nixbench of that folder, or renew the folder"
		switch {
		case folder == filepath.Join(source.Dir, modulesFolder):
			advice = "nixbench init --update renews them"
			if wd, err := os.Getwd(); err == nil && wd != source.Dir {
				advice = "nixbench init --update --dir " + source.Dir + " renews them"
			}
		case source.IsFlake() && strings.HasPrefix(folder, "/nix/store/"):
			advice = "use the nixbench of the flake, nix run .#nixbench, or renew its input, nix flake update nixbench"
		}
		a.sendEvent(event.Event{Kind: event.Message, Level: "warning", Time: time.Now(),
			Text: fmt.Sprintf("the modules in %s differ from those of this nixbench, %s: %s: %s", folder, readBuildVersion().Version, shorten(differ), advice)})
	}
}

// shorten returns the first names of a list.
func shorten(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
