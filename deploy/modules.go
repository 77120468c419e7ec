package deploy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/modules"
	"github.com/nixbench/nixbench/nixeval"
)

// ModulesFolder is the folder beside hive.nix into which `nixbench init` writes nixbench's NixOS modules.
const ModulesFolder = "modules"

// warnAboutModules compares folders with nixbench's NixOS modules with the modules of this program, and sends a warning for each
// folder that differs: the folder beside the hive, and the folders from which the hive's nodes import modules. version is the
// version of the program. hive is nil if the survey has failed.
func warnAboutModules(source nixeval.Source, hive *nixeval.Hive, version string, send event.Sink) {
	beside := filepath.Join(source.Dir, ModulesFolder)
	var folders []string
	if hive != nil {
		for _, u := range hive.Units {
			if u.Deployment.Modules != nil {
				folders = append(folders, *u.Deployment.Modules)
			}
		}
	}
	if !source.IsFlake() && durable.Exists(filepath.Join(beside, "runtime.nix")) && durable.Exists(filepath.Join(beside, "image.nix")) {
		folders = append(folders, beside)
	}
	slices.Sort(folders)
	for _, folder := range slices.Compact(folders) {
		differ, err := modules.Compare(os.DirFS(folder))
		if len(differ) == 0 || errors.Is(err, fs.ErrNotExist) { // some versions of Nix do not write a flake's input into the store
			continue
		}
		advice := "use the nixbench of that folder, or renew the folder"
		switch {
		case folder == beside:
			advice = "nixbench init --update renews them"
			if wd, err := os.Getwd(); err == nil && wd != source.Dir {
				advice = "nixbench init --update --dir " + source.Dir + " renews them"
			}
		case source.IsFlake() && strings.HasPrefix(folder, "/nix/store/"):
			advice = "use the nixbench of the flake, nix run .#nixbench, or renew its input, nix flake update nixbench"
		}
		send.Warn("the modules in %s differ from those of this nixbench, %s: %s: %s", folder, version, event.Abbreviate(differ, ", "), advice)
	}
}
