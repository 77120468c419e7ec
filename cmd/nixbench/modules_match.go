package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/modules"
	"github.com/nixbench/nixbench/nixeval"
)

// copiedModules returns the folder of modules that init has written beside a hive, or nothing if there is none.
func copiedModules(source nixeval.Source) []string {
	folder := filepath.Join(source.Dir, modulesFolder)
	if source.IsFlake() || !durable.Exists(filepath.Join(folder, copiesFile)) {
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

// warnAboutModules sends a warning for each of the folders whose modules are of another version than this program.
func (a *app) warnAboutModules(source nixeval.Source, folders []string) error {
	if len(folders) == 0 {
		return nil
	}
	own, err := modules.OwnSums()
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if text := compareModules(source, folder, own); text != "" {
			a.sendEvent(event.Event{Kind: event.Message, Level: "warning", Time: time.Now(), Text: text})
		}
	}
	return nil
}

// compareModules returns a warning if a folder of modules is of another version, otherwise an empty string. A folder that init has
// written records its version, so that files which the user has changed there cause no warning. Other folders
// are compared by their content.
func compareModules(source nixeval.Source, folder string, own modules.Sums) string {
	recorded, err := readModuleCopies(folder)
	if err == nil {
		if recorded.Digest == own.Digest() {
			return ""
		}
		return fmt.Sprintf("%s is of nixbench %s, and this is %s: run %s", folder, recorded.Version, readBuildVersion().Version, updateCommand(folder))
	}
	equal := false
	if errors.Is(err, fs.ErrNotExist) {
		equal, err = own.Equal(os.DirFS(folder))
	}
	if equal || errors.Is(err, fs.ErrNotExist) { // some versions of Nix do not write a flake's input into the store
		return ""
	}
	if err != nil {
		return fmt.Sprintf("the version of the modules in %s is not known: %v", folder, err)
	}
	advice := "use the nixbench of that folder, or renew the folder"
	switch {
	case filepath.Base(folder) == modulesFolder && filepath.Dir(folder) == source.Dir:
		advice = "run " + updateCommand(folder)
	case source.IsFlake() && strings.HasPrefix(folder, "/nix/store/"):
		advice = "use the nixbench of the flake, nix run .#nixbench, or renew its input, nix flake update nixbench"
	}
	return fmt.Sprintf("the modules in %s differ from those of this nixbench, %s: %s", folder, readBuildVersion().Version, advice)
}

// updateCommand returns the command that renews a copy of the modules.
func updateCommand(folder string) string {
	command, dir := "nixbench init --update", filepath.Dir(folder)
	if wd, err := os.Getwd(); err == nil && wd != dir {
		command += " --dir " + dir
	}
	return command
}
