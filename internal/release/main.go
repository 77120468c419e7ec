// Program release builds the files of a release: an archive for each platform, the source archive, an SBOM for each
// program, and SHA256SUMS. scripts/release runs it. It publishes nothing.
//
// The same commit and the same version of Go give the same bytes, on every computer and in every folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

// platforms are the platforms with a program. All programs are built without cgo, and so without libvirt.
var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "-" + p.arch }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("scripts/release", flag.ContinueOnError)
	output := flags.String("output", "", "folder to create (default: dist/VERSION)")
	only := flags.String("platform", "", "build only this platform, such as linux-amd64")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: scripts/release [--output FOLDER] [--platform OS-ARCH] VERSION\n\nBuild the files of the release VERSION, such as v0.1.0. HEAD must have this tag.")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return flag.ErrHelp
	}
	version := flags.Arg(0)
	if *output == "" {
		*output = "dist/" + version
	}
	selected, err := selectPlatforms(*only)
	if err != nil {
		return err
	}
	src, err := checkSource(ctx, ".", version)
	if err != nil {
		return err
	}
	if err := src.build(ctx, selected, *output, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nNothing was published. docs/releases.md describes how to sign and upload the files in %s.\n", *output)
	return nil
}

func selectPlatforms(name string) ([]platform, error) {
	var names []string
	for _, p := range platforms {
		if name == p.String() {
			return []platform{p}, nil
		}
		names = append(names, p.String())
	}
	if name != "" {
		return nil, fmt.Errorf("--platform %s: there is no such platform, only %s", name, strings.Join(names, ", "))
	}
	return platforms, nil
}
