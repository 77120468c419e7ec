# All options of nixbench, as data for options_test.go.
{
  nixpkgs,
  lib ? import (nixpkgs + "/lib"),
}:
let
  describe =
    keep: options:
    map
      (o: {
        inherit (o)
          name
          type
          description
          readOnly
          ;
        default = o.default.text or null;
        defaultKind = o.default._type or null;
        example = o.example.text or null;
      })
      (
        builtins.filter (o: !o.internal && o.visible && builtins.head o.loc != "_module" && keep o) (
          lib.optionAttrSetToDocList options
        )
      );

  declared =
    module: args:
    (lib.evalModules {
      modules = [
        module
        {
          _module.args = args;
          _module.check = false; # of NixOS, nothing is here
        }
      ];
    }).options;

  below = prefix: o: builtins.head o.loc == prefix && !lib.hasInfix "._module" o.name && !lib.hasPrefix "deployment.engine." o.name;
  hive = declared ../../modules/hive.nix { };
  benchmarks = declared ../../bench/nix/options.nix { };
  deployment = declared ../../modules/deployment.nix { name = "web"; };

  system =
    (import (nixpkgs + "/nixos/lib/eval-config.nix") {
      inherit lib;
      system = "x86_64-linux";
      specialArgs = {
        name = "web";
        runtime = null;
      };
      modules = [
        ../../modules/guest.nix
        ../../modules/image.nix
        ../../modules/kubernetes
        ../../modules/slurm
        ../../modules/flux
      ];
    }).options;
  kubernetes = o: builtins.elem "kubernetes" o.loc;
  slurm = o: builtins.elem "slurm" o.loc;
  flux = o: builtins.elem "flux" o.loc;
in
{
  hive = describe (o: !lib.hasInfix "._module" o.name) hive;
  benchmarks = describe (o: !lib.hasInfix "._module" o.name) benchmarks;
  deployment = describe (below "deployment") deployment;
  node = describe (o: below "nixbench" o && !kubernetes o && !slurm o && !flux o) { inherit (system) nixbench; };
  kubernetes = describe (o: below "nixbench" o && kubernetes o) { inherit (system) nixbench; };
  slurm = describe (o: below "nixbench" o && slurm o) { inherit (system) nixbench; };
  flux = describe (o: below "nixbench" o && flux o) { inherit (system) nixbench; };
}
