# Tests in virtual machines with NixOS' test driver, for the flake's checks: they need Nix and a builder with KVM. They are
# sets, so that the flake can omit them if its nixpkgs has no test driver.
{
  pkgs,
  nixbench,
  nixpkgs ? toString pkgs.path,
}:
let
  common = import ./common.nix { inherit pkgs nixbench nixpkgs; };
  test = file: pkgs.testers.runNixOSTest (import file { inherit pkgs common; });
in
{
  existing-machines = test ./existing-machines.nix;
  kubernetes-cluster = test ./kubernetes.nix;
}
// pkgs.lib.optionalAttrs pkgs.stdenv.hostPlatform.isx86_64 {
  hypervisor = test ./hypervisor.nix;
}
