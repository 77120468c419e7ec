// Package templates contains the hives that `nixbench init` writes. The templates of the
// flake are the same files.
package templates

import "embed"

// Files are the folders of the templates. Each has a hive.nix and a .gitignore, and
// each but `empty` has a flake.nix.
//
//go:embed all:kubernetes all:schedulers all:existing-machines all:from-colmena all:empty
var Files embed.FS
