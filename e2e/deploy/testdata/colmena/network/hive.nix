# Machines at home, in the older form: `network`, nixpkgs as a path, a file per host.
{
  network = {
    description = "Machines at home";
    nixpkgs = <nixpkgs>;
  };

  defaults =
    {
      config,
      lib,
      name,
      ...
    }:
    {
      imports = [
        ./common.nix
        (./hosts + "/${name}.nix")
      ];
      networking.hostName = lib.mkDefault (lib.head (lib.splitString "." name));
      deployment.replaceUnknownProfiles = lib.mkDefault true;
      deployment.allowLocalDeployment = lib.elem "desk" config.deployment.tags;
    };

  "router.home.example" = { };

  nas = {
    deployment = {
      targetHost = "10.77.0.20";
      targetPort = 2222;
      tags = [
        "storage"
        "infra"
      ];
    };
  };

  # Only for apply-local.
  laptop = {
    deployment.targetHost = null;
    deployment.tags = [ "desk" ];
  };
}
