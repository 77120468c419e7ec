# Programs for Kubernetes clusters that nixpkgs does not have: `callPackage ./packages { }`.
{ callPackage }:
{
  volcano = callPackage ./volcano.nix { };
}
