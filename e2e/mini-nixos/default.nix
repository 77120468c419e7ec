# Stands in for `import <nixpkgs> { }`: a package set with nixpkgs' builders and
# the few packages that nodes of a test cluster need.
{
  system ? "x86_64-linux",
  # As in nixpkgs, `localSystem` is another way to say `system`.
  localSystem ? { inherit system; },
  config ? { },
  overlays ? [ ],
  lib ? import ./lib,
  # Holds bin/busybox, static, and bin/sh: see ./assemble.
  busyboxDir ? ./busybox,
  ...
}:
let
  hostPlatform = lib.systems.elaborate localSystem;

  base = final: {
    _type = "pkgs";
    inherit config lib overlays;
    inherit (hostPlatform) system;
    path = ./.;
    pkgs = final;

    stdenv = {
      inherit hostPlatform;
      inherit (hostPlatform) isLinux isDarwin isx86_64 isAarch64;
      inherit (hostPlatform) system;
      buildPlatform = hostPlatform // {
        canExecute = other: lib.systems.equals hostPlatform other;
      };
      targetPlatform = hostPlatform;
    };

    callPackage = callPackageWith final;
    newScope = scope: callPackageWith (final // scope);
    appendOverlays = more: if more == [ ] then final else import ./. {
      inherit busyboxDir config lib localSystem;
      overlays = overlays ++ more;
    };
    extend = overlay: final.appendOverlays [ overlay ];
  };

  callPackageWith =
    scope: file: args:
    let
      f = if lib.isFunction file then file else import file;
    in
    f (builtins.intersectAttrs (lib.functionArgs f) scope // args);

  layers = [
    (import ./pkgs/builders.nix { inherit busyboxDir; })
    (import ./pkgs/formats.nix)
    (import ./pkgs/packages.nix)
    (import ./pkgs/development.nix)
  ]
  ++ overlays;
in
assert lib.assertMsg hostPlatform.isLinux "the mini NixOS builds for Linux only, not for ${hostPlatform.system}";
lib.fix (lib.foldl' (prev: overlay: lib.extends overlay prev) base layers)
