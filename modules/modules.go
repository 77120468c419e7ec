// Package modules holds the NixOS modules of nixbench. Users import them as
// files or through the flake; the binary carries those that every evaluation
// needs, so that it works without either.
package modules

import "embed"

// Texts of the modules that nixeval puts into its expression. Each is one Nix
// expression: a module.
var (
	//go:embed hive.nix
	Hive string
	//go:embed deployment.nix
	Deployment string
	//go:embed keys.nix
	Keys string
	//go:embed shared-role.nix
	SharedRole string
)

// Files are all modules, for `nixbench init`.
//
//go:embed *.nix kubernetes
var Files embed.FS
