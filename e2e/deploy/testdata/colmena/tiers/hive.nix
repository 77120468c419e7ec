# A function; nodes that are computed; arguments and package sets of their own.
{
  nixpkgs ? import <nixpkgs> { system = "x86_64-linux"; },
}:
let
  inherit (nixpkgs) lib;

  app = index: {
    name = "app-${toString index}";
    value =
      { greeting, name, ... }:
      {
        deployment = {
          targetHost = "${name}.tiers.example";
          targetUser = "deploy";
          privilegeEscalationCommand = [
            "sudo"
            "-H"
            "--"
          ];
          tags = [ "app" ];
        };
        environment.etc."which".text = "${name}: ${greeting}";
      };
  };
in
{
  meta = {
    inherit nixpkgs;
    description = "Applications behind a balancer";
    specialArgs.greeting = "hello";
    nodeSpecialArgs.balancer.greeting = "welcome";
    nodeNixpkgs.balancer = import <nixpkgs> {
      system = "x86_64-linux";
      overlays = [ (_final: prev: { ours = prev.writeText "ours" "from an overlay"; }) ];
    };
    allowApplyAll = false;
  };

  defaults = {
    networking.firewall.enable = false;
    nix.settings.trusted-users = [
      "root"
      "@wheel"
      "deploy"
    ];
    system.stateVersion = "24.11";
  };

  balancer =
    {
      greeting,
      nodes,
      pkgs,
      ...
    }:
    {
      imports = [ ./balancer.nix ];
      deployment.targetHost = "balancer.tiers.example";
      deployment.targetUser = null; # as the SSH configuration says
      deployment.buildOnTarget = true;
      deployment.replaceUnknownProfiles = false;
      environment.etc."which".text = "balancer: ${greeting}";
      environment.etc."ours".source = pkgs.ours;
      environment.etc."upstreams".text = lib.concatMapStrings (n: n.config.deployment.targetHost + "\n") (
        lib.filter (n: lib.elem "app" n.config.deployment.tags) (lib.attrValues nodes)
      );
    };
}
// builtins.listToAttrs (map app [ 1 ])
