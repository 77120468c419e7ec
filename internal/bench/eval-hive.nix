# A cluster like the reference hive, with job.Nodes nodes: a control plane, and workers as one role or by name. job.json
# is an evalJob.
let
  job = builtins.fromJSON (builtins.readFile ./job.json);

  # Programs in Haskell are replaced, because not every copy of nixpkgs contains the large file with their packages.
  nixpkgs = import (/. + job.Nixpkgs) {
    overlays = [
      (final: prev: {
        shellcheck = prev.writeShellScriptBin "shellcheck" "exit 1" // {
          compiler.bootstrapAvailable = true;
        };
        shellcheck-minimal = final.shellcheck;
        pandoc = prev.writeShellScriptBin "pandoc" "exit 1";
      })
    ];
  };
  inherit (nixpkgs) lib;

  modules = /. + job.Modules;
  controlPlane = modules + "/kubernetes/control-plane.nix";
  worker = modules + "/kubernetes/worker.nix";

  namedNode =
    module:
    { name, nodes, ... }:
    {
      imports = [ module ];
      environment.etc.nodes = lib.mkIf job.Cross {
        text = lib.concatMapStrings (n: "${n.config.networking.hostName}\n") (lib.attrValues nodes);
      };
      networking.hostName = name;
      deployment.targetHost = "${name}.example.org";
    };

  nodes =
    if job.ByName then
      {
        control-plane-1 = namedNode controlPlane;
      }
      // lib.genAttrs (lib.genList (i: "worker-${toString (i + 1)}") (job.Nodes - 1)) (_: namedNode worker)
    else
      {
        cluster.endpoint.role = "control-plane";
        roles.control-plane = {
          count = 1;
          modules = [ controlPlane ];
        };
        roles.worker = {
          count = job.Nodes - 1;
          modules = [ worker ];
        };
      };
in
{
  meta.name = "bench";
  meta.nixpkgs = nixpkgs;
  defaults = {
    imports = [ (modules + "/guest.nix") ];
    nixbench.kubernetes.podCidr = "10.244.0.0/16";
    system.stateVersion = "25.05";
    environment.etc.bench.text = job.Salt;
  };
}
// nodes
