package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/modules"
)

// updateModules replaces nixbench's modules, which `nixbench init` has written into a folder, by the modules of this program. It
// shows what it changes.
func updateModules(view *ui.View, dir string) error {
	folder := filepath.Join(dir, deploy.ModulesFolder)
	updated, err := modules.Compare(os.DirFS(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return failure.WithHint(failure.NewUsage("init: there is no %s, so there is nothing to update", folder),
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
	view.Result(v, func(w io.Writer) {
		if len(updated) == 0 {
			fmt.Fprintln(w, "nothing to update")
			return
		}
		fmt.Fprintf(w, "%s\nupdated %d files in %s\n\nnext: nixbench plan\n", changes.Bytes(), len(updated), folder)
	})
	return nil
}

// writeModule writes a module of nixbench to file. path is the path of the module in this program. It adds the difference from the
// old content to changes.
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
