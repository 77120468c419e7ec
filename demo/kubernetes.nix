# What the reference cluster (../hive.nix) needs to run in containers of the lab.
let
  container = import ../e2e/lab/kubernetes-node.nix;
in
{
  hive = ../hive.nix;
  cluster = { };
  inherit (container) machine;

  module = {
    imports = [ container.module ];
    networking.nameservers = [ "192.168.222.1" ]; # kubelets pass it on to pods
  };
}
