# All modules of Flux. They change nothing on a node without `nixbench.flux.role`. A role of the hive imports
# ./leader.nix or ./compute.nix, which import this file and set that option.
{
  imports = [
    ../runtime.nix
    ./base.nix
    ./broker.nix
    ./certificate.nix
    ./config.nix
    ./engine.nix
    ./handover.nix
  ];
}
