# The template `schedulers`, with machines that are containers of the lab.
{
  nixpkgs,
  uri,
  poolPath,
  image,
}:
let
  template = import ../../templates/schedulers/hive.nix {
    nixpkgs = import nixpkgs { system = "x86_64-linux"; };
    modules = ../../modules;
  };

  container = import ../lab/kubernetes-node.nix;

  kubernetesInContainers = {
    imports = [ container.module ];
    networking.nameservers = [ "192.168.223.1" ]; # kubelets pass it on to pods
  };
in
template
// {
  cluster = template.cluster // {
    hypervisors.default = { inherit uri poolPath; };
    schedulers = template.cluster.schedulers // {
      kubernetes.modules = template.cluster.schedulers.kubernetes.modules ++ [ kubernetesInContainers ];
    };
  };
  roles = builtins.mapAttrs (_: role: role // container.machine // { inherit image; }) template.roles;
  defaults = {
    imports = [ template.defaults ];
    boot.isContainer = true;
  };
}
