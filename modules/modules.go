// Package modules contains the NixOS modules of nixbench. Users import the modules as files or
// through the flake. nixbench adds some of them to every evaluation, so that a hive does not
// have to import these.
package modules

import "embed"

// The source texts of the modules that package nixeval adds to each evaluation. Each text is one Nix expression.
var (
	//go:embed hive.nix
	Hive string
	//go:embed deployment.nix
	Deployment string
	//go:embed engine.nix
	Engine string
	//go:embed keys.nix
	Keys string
	//go:embed shared-role.nix
	SharedRole string
)

// Files contains the files of all modules. `nixbench init` writes these files.
//
//go:embed *.nix flux handover kubernetes slurm
var Files embed.FS
