package main

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
)

// version and commit are set by a build outside of the git repository, with -ldflags "-X main.version=… -X main.commit=…". If they
// are empty, readBuildVersion reads Go's build information.
var version, commit string

func versionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of nixbench",
		Args:  cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return showVersion(a.view) })
	return cmd
}

func showVersion(view *ui.View) error {
	v := readBuildVersion()
	view.Result(v, func(w io.Writer) {
		fmt.Fprintf(w, "nixbench %s", v.Version)
		if v.Commit != "" {
			fmt.Fprintf(w, " (%s)", v.Commit)
		}
		fmt.Fprintf(w, " %s", v.Go)
		if !v.Libvirt {
			fmt.Fprint(w, ", without libvirt: it deploys to existing machines and creates none")
		}
		fmt.Fprintln(w)
	})
	return nil
}

type versionView struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	Libvirt bool   `json:"libvirt"` // whether the program can create machines
}

// readBuildVersion returns the version of this program. It reads Go's build information if the linker has set no version.
func readBuildVersion() versionView {
	v := versionView{Version: version, Commit: commit, Libvirt: hasLibvirt}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	dirty := ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			if commit == "" {
				v.Commit = s.Value
			}
		case "vcs.modified":
			if s.Value == "true" && commit == "" {
				dirty = "-dirty"
			}
		}
	}
	if len(v.Commit) > 12 {
		v.Commit = v.Commit[:12]
	}
	if v.Commit != "" {
		v.Commit += dirty
	}
	return v
}
