package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/modules"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/templates"
)

const initLong = `Write a first hive from a template: a hive.nix with explanations, and a
.gitignore for the state folder of nixbench. If one of the files exists, nothing
is written; an existing .gitignore is kept.

  kubernetes   a cluster of machines that nixbench boots, with nixbench's NixOS
               modules in modules/
  schedulers   a cluster of such machines that runs Kubernetes or SLURM
  machines     existing NixOS machines
  empty        no nodes

With --flake it also writes a flake.nix, which gets the modules from the flake
of nixbench.

The cluster has the name of the folder, and an address range that depends on the
name, so that clusters from different folders can be on one hypervisor.`

// template is a template of `nixbench init`. dir is its folder in [templates.Files]. next tells the user what to do next.
type template struct{ name, dir, next string }

var initTemplates = []template{
	{"kubernetes", "kubernetes", "review hive.nix, then: nixbench doctor && nixbench plan"},
	{"schedulers", "schedulers", "review hive.nix, then: nixbench plan --set scheduler=slurm"},
	{"machines", "existing-machines", "add your machines to hive.nix, then: nixbench plan"},
	{"empty", "empty", "add nodes to hive.nix, then: nixbench eval"},
}

func templateNames() []string {
	var names []string
	for _, t := range initTemplates {
		names = append(names, t.name)
	}
	return names
}

func initCommand(a *app) *cobra.Command {
	var dir string
	var flake, update bool
	cmd := &cobra.Command{
		Use:   "init [TEMPLATE]",
		Short: "Write a first hive from a template",
		Long:  initLong,
		Example: `  mkdir cluster && cd cluster && nixbench init
  nixbench init machines --flake
  nixbench init empty --dir lab
  nixbench init --update`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: templateNames(),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if update && (flake || len(args) > 0) {
			return failure.NewUsage("init --update takes no template and no --flake; it writes the modules again")
		}
		if update {
			return updateModules(a.view, dir)
		}
		name := initTemplates[0].name
		if len(args) == 1 {
			name = args[0]
		}
		return writeTemplate(a.view, name, dir, flake)
	})
	cmd.Flags().BoolVar(&flake, "flake", false, "write a flake, too")
	cmd.Flags().BoolVar(&update, "update", false, "write the files in modules/ again, and show what changes")
	cmd.Flags().StringVar(&dir, "dir", ".", "write into `FOLDER`, which is created if it does not exist")
	return cmd
}

// writeTemplate writes the files of a template into the folder dir. With flake, it also writes a flake.nix.
func writeTemplate(view *ui.View, name, dir string, flake bool) error {
	i := slices.IndexFunc(initTemplates, func(t template) bool { return t.name == name })
	if i < 0 {
		return failure.NewUsage("init: there is no template %q; there are %s", name, strings.Join(templateNames(), ", "))
	}
	if flake && name == "empty" {
		return failure.NewUsage("init: the template empty has no flake; use the template machines")
	}
	files, err := readTemplate(initTemplates[i].dir, flake)
	if err != nil {
		return err
	}
	cluster, err := clusterNameOf(dir)
	if err != nil {
		return err
	}
	files["hive.nix"] = nameCluster(files["hive.nix"], cluster)
	if err := writeNewFiles(dir, files); err != nil {
		return err
	}
	next := initTemplates[i].next
	if flake {
		source, err := nixeval.ParseFileSource(filepath.Join(dir, "flake.nix"))
		if err != nil {
			return err
		}
		if !source.Copied { // Nix reads the files that git knows
			next = "git add ., " + next
		}
	}
	showNextStep(view, dir, files, next)
	return nil
}

// readTemplate returns the contents of a template's files, by the path of the file. With flake, the files include flake.nix.
func readTemplate(folder string, flake bool) (map[string][]byte, error) {
	files := map[string][]byte{}
	add := func(from fs.FS, below, to string, skip func(string) bool) error {
		return fs.WalkDir(from, below, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel := strings.TrimPrefix(path, below+"/")
			if skip(rel) {
				return nil
			}
			text, err := fs.ReadFile(from, path)
			files[filepath.Join(to, rel)] = text
			return err
		})
	}
	none := func(string) bool { return false }
	if err := add(templates.Files, folder, "", func(f string) bool { return f == "flake.nix" && !flake }); err != nil {
		return nil, err
	}
	// A flake has nixbench's modules as an input. Without a flake, init writes the modules beside the hive.
	if (folder == "kubernetes" || folder == "schedulers") && !flake {
		if err := add(modules.Files, ".", deploy.ModulesFolder, none); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// writeNewFiles writes all files. If one of them exists already, it writes none.
func writeNewFiles(dir string, files map[string][]byte) error {
	if _, err := os.Lstat(filepath.Join(dir, ".gitignore")); err == nil {
		delete(files, ".gitignore") // an existing .gitignore is kept; the state folder has one of its own
	}
	for _, name := range sortedNames(files) {
		// Fail only if a file would be overwritten: the folder modules/ may exist with other modules.
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return failure.NewUsage("init: %s exists, and init overwrites nothing; use another folder with --dir", filepath.Join(dir, name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var written []string
	for _, name := range sortedNames(files) {
		path := filepath.Join(dir, name)
		created, err := createFile(path, files[name])
		if created {
			written = append(written, path)
		}
		if err != nil {
			for _, path := range written { // remove the files that were written, because the next init would fail if they exist
				_ = os.Remove(path)
			}
			return err
		}
	}
	return nil
}

// createFile writes a new file, and fails if the file exists. created reports whether it has created the file: this can be true
// even if it returns an error.
func createFile(path string, data []byte) (created bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return false, err
	}
	_, err = f.Write(data)
	return true, errors.Join(err, f.Close())
}

// showNextStep lists the files that init has written into dir, and tells the user what to do next.
func showNextStep(view *ui.View, dir string, files map[string][]byte, next string) {
	var shown []string // names to show: files, and folders once in place of their files
	for _, name := range sortedNames(files) {
		if top, _, nested := strings.Cut(name, "/"); nested {
			name = top + "/"
		}
		if !slices.Contains(shown, name) {
			shown = append(shown, name)
		}
	}
	v := struct {
		Dir   string   `json:"dir"`
		Files []string `json:"files"`
	}{dir, sortedNames(files)}
	view.Result(v, func(w io.Writer) {
		for _, name := range shown {
			fmt.Fprintln(w, strings.TrimPrefix(dir+"/", "./")+name)
		}
		if dir != "." {
			next = "cd " + dir + ", " + next
		}
		fmt.Fprintf(w, "\nnext: %s\n", next)
	})
}
