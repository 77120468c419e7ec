# Packages of Flux, which nixpkgs does not have: `callPackage ./packages { }`. These versions of the packages work together. The
# hashes are those of the tags in the repositories github.com/flux-framework/*.
{ callPackage }:
let
  flux-security = callPackage ./flux-security.nix { };
  flux-core = callPackage ./flux-core.nix { inherit flux-security; };
in
{
  inherit flux-core flux-security;
  flux-sched = callPackage ./flux-sched.nix { inherit flux-core; };
}
