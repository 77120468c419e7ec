// Package templates holds the hives that a new user begins with. Those that are
// folders of a flake's templates too are the same files.
package templates

import "embed"

// Files are the folders of the templates, each with a hive.nix and a .gitignore, and
// all but one with a flake.nix.
//
//go:embed all:kubernetes all:existing-machines all:from-colmena all:empty
var Files embed.FS
