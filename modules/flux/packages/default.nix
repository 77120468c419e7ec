# Flux as packages, which nixpkgs does not have: `callPackage ./packages { }`. The versions work together. The hashes are
# those of the tags of the repositories github.com/flux-framework/*.
{ callPackage }:
let
  flux-security = callPackage ./flux-security.nix { };
  flux-core = callPackage ./flux-core.nix { inherit flux-security; };
in
{
  inherit flux-core flux-security;
  flux-sched = callPackage ./flux-sched.nix { inherit flux-core; };
}
