package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/modules"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/templates"
)

// initTemplates contains the templates of `nixbench init`. dir is the folder in [templates.Files]. next tells the user what to do next.
var initTemplates = map[string]struct{ dir, next string }{
	"kubernetes": {"kubernetes", "review hive.nix, then: nixbench doctor && nixbench plan"},
	"schedulers": {"schedulers", "review hive.nix, then: nixbench plan --set scheduler=slurm"},
	"machines":   {"existing-machines", "add your machines to hive.nix, then: nixbench plan"},
	"empty":      {"empty", "add nodes to hive.nix, then: nixbench eval"},
}

var templateNames = []string{"kubernetes", "schedulers", "machines", "empty"}

func initCommand(a *app) *cobra.Command {
	var dir string
	var flake, update bool
	cmd := &cobra.Command{
		Use:   "init [TEMPLATE]",
		Short: "Write a first hive from a template",
		Long: `Write a first hive from a template: a hive.nix with explanations, and a
.gitignore for the state folder of nixbench. If one of the files exists, nothing
is written; an existing .gitignore is kept.

  kubernetes   a cluster of machines that nixbench boots, with nixbench's NixOS
               modules in modules/
  schedulers   a cluster of such machines that runs Kubernetes or SLURM
  machines     existing NixOS machines
  empty        no nodes

The cluster has the name of the folder, and an address range that depends on the
name, so that clusters from different folders can be on one hypervisor.`,
		Example:   `  mkdir cluster && cd cluster && nixbench init machines --flake`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: templateNames,
	}
	cmd.RunE = a.withView(func(args []string) error {
		if update && (flake || len(args) > 0) {
			return failure.NewUsage("init --update takes no template and no --flake; it writes the modules again")
		}
		if update {
			return updateModules(a.view, dir)
		}
		return writeTemplate(a.view, append(args, templateNames[0])[0], dir, flake)
	})
	cmd.Flags().BoolVar(&flake, "flake", false, "also write a flake.nix, which gets the modules from the flake of nixbench")
	cmd.Flags().BoolVar(&update, "update", false, "write the files in modules/ again, and show what changes")
	cmd.Flags().StringVar(&dir, "dir", ".", "write into `FOLDER`, which is created if it does not exist")
	return cmd
}

func writeTemplate(view *ui.View, name, dir string, flake bool) error {
	template, exists := initTemplates[name]
	if !exists {
		return failure.NewUsage("init: there is no template %q; there are %s", name, strings.Join(templateNames, ", "))
	}
	if flake && name == "empty" {
		return failure.NewUsage("init: the template empty has no flake; use the template machines")
	}
	files, err := readTemplate(template.dir, flake)
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
	next := template.next
	if flake {
		source, err := nixeval.ParseFileSource(filepath.Join(dir, "flake.nix"))
		if err != nil {
			return err
		}
		if !source.Copied { // Nix reads the files that git knows
			next = "git add ., " + next
		}
	}
	if dir != "." {
		next = "cd " + dir + ", " + next
	}
	view.Result(map[string]any{"dir": dir, "files": nixeval.SortedNames(files)}, func(w io.Writer) {
		shown := map[string]bool{} // files, and folders once in place of their files
		for _, name := range nixeval.SortedNames(files) {
			if top, _, nested := strings.Cut(name, "/"); nested {
				name = top + "/"
			}
			if !shown[name] {
				fmt.Fprintln(w, strings.TrimPrefix(dir+"/", "./")+name)
			}
			shown[name] = true
		}
		fmt.Fprintf(w, "\nnext: %s\n", next)
	})
	return nil
}

func readTemplate(folder string, flake bool) (map[string][]byte, error) {
	files := map[string][]byte{}
	add := func(from fs.FS, below, to string) error {
		return fs.WalkDir(from, below, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			files[filepath.Join(to, strings.TrimPrefix(path, below+"/"))], err = fs.ReadFile(from, path)
			return err
		})
	}
	if err := add(templates.Files, folder, ""); err != nil {
		return nil, err
	}
	if flake { // a flake has nixbench's modules as an input
		return files, nil
	}
	delete(files, "flake.nix")
	if folder == "kubernetes" || folder == "schedulers" {
		return files, add(modules.Files, ".", deploy.ModulesFolder)
	}
	return files, nil
}

// writeNewFiles writes the files. If one of them exists already, it writes none.
func writeNewFiles(dir string, files map[string][]byte) error {
	exists := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	if exists(".gitignore") {
		delete(files, ".gitignore") // an existing .gitignore is kept; the state folder has one of its own
	}
	for _, name := range nixeval.SortedNames(files) {
		// Fail only if a file would be overwritten: the folder modules/ may exist with other modules.
		if exists(name) {
			return failure.NewUsage("init: %s exists, and init overwrites nothing; use another folder with --dir", filepath.Join(dir, name))
		}
	}
	for _, name := range nixeval.SortedNames(files) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

func updateModules(view *ui.View, dir string) error {
	folder := filepath.Join(dir, deploy.ModulesFolder)
	updated, err := modules.Compare(os.DirFS(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return failure.WithHint(failure.NewUsage("init: there is no %s, so there is nothing to update", folder),
			"a flake gets the modules from its input: nix flake update nixbench")
	}
	if err != nil {
		return err
	}
	var changes bytes.Buffer
	for _, path := range updated {
		file := filepath.Join(folder, filepath.FromSlash(path))
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
		if err := durable.WriteShared(file, content); err != nil {
			return err
		}
		changes.Write(diff.Diff(file, old, "nixbench "+readBuildVersion().Version, content))
	}
	view.Result(map[string]any{"dir": folder, "updated": append([]string{}, updated...)}, func(w io.Writer) {
		if len(updated) == 0 {
			fmt.Fprintln(w, "nothing to update")
			return
		}
		fmt.Fprintf(w, "%s\nupdated %d files in %s\n\nnext: nixbench plan\n", changes.Bytes(), len(updated), folder)
	})
	return nil
}

// clusterNameOf returns the name for a new cluster in a folder. It is the name of the folder in lower case, with hyphens in place
// of characters that are neither letters nor digits, and not too long for the names of machines and of a network that contain it.
func clusterNameOf(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	name := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(filepath.Base(abs)), "-")
	name = strings.Trim(name[:min(len(name), 32)], "-")
	return cmp.Or(name, "cluster"), nil // the folder may be /, or its name may have no letter and no digit
}

// networkRangeOf returns the address range for a new cluster. The name of the cluster determines the range, so that clusters with
// different names can be on one hypervisor. It is one of 28,672 ranges from 10.128.0.0/24 to 10.239.255.0/24. None of these
// overlaps with the ranges of Kubernetes' pods and services in the templates.
func networkRangeOf(cluster string) string {
	sum := sha256.Sum256([]byte(cluster))
	return fmt.Sprintf("10.%d.%d.0/24", 128+int(sum[0])%112, sum[1])
}

// nameCluster returns the hive.nix of a template with the name of the cluster, and if it has a network, with its name and address range.
func nameCluster(hive []byte, cluster string) []byte {
	for option, value := range map[string]string{"meta.name": cluster, "cluster.network.name": cluster, "cluster.network.cidr": networkRangeOf(cluster)} {
		line := regexp.MustCompile(`(?m)^(  ` + regexp.QuoteMeta(option) + ` = )"[^"]*"`)
		hive = line.ReplaceAll(hive, fmt.Appendf(nil, `${1}"%s"`, value))
	}
	return hive
}
