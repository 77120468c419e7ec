// Package modules contains the NixOS modules of nixbench. Users import them as files or
// through the flake. The binary embeds the modules that every evaluation needs, so that
// a user's hive does not have to import them.
package modules

import "embed"

// The source texts of the modules that nixeval includes in its Nix expression. Each text
// is one Nix expression: a module.
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

// Files are all modules. `nixbench init` writes them.
//
//go:embed *.nix kubernetes
var Files embed.FS
