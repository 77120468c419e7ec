# The stages of nixpkgs' bootstrap, for `import nixpkgs { stdenvStages = …; }`: one standard
# environment of the programs that this computer has in /usr. Nothing is bootstrapped, and
# sources are not fetched.
{
  lib,
  localSystem,
  crossSystem,
  config,
  overlays,
  # The root folder of nixpkgs.
  nixpkgs,
}:
let
  # Packages that are built from sources cannot be built without a network. They evaluate, and
  # building one fails with its name: overlay.nix has to contain a package with this name.
  makeDerivation = import (nixpkgs + "/pkgs/stdenv/generic/make-derivation.nix") lib config;
  mkDerivationFromStdenv =
    stdenv:
    let
      inherit (makeDerivation stdenv) mkDerivation;
    in
    args:
    let
      package = mkDerivation args;
      attrs = if lib.isFunction args then args (attrs // { finalPackage = package; }) else args;
      name = attrs.pname or attrs.name;
    in
    if !(attrs ? src || attrs ? srcs) || attrs ? buildCommand || attrs.dontUnpack or false then
      package
    else
      mkDerivation {
        pname = name;
        version = "unavailable";
        outputs = attrs.outputs or [ "out" ];
        passthru = attrs.passthru or { };
        meta = { mainProgram = name; } // attrs.meta or { };
        buildCommand = "echo 'overlay.nix has no package ${name}' >&2; exit 1";
      };

  makeStdenv =
    { fetchurl, cc }:
    import (nixpkgs + "/pkgs/stdenv/generic") { defaultConfig = config; } {
      buildPlatform = localSystem;
      hostPlatform = localSystem;
      targetPlatform = localSystem;
      shell = "/bin/bash";
      initialPath = [ "/usr" ];
      # Programs link to this computer's C library.
      preHook = ''
        export NIX_ENFORCE_PURITY= NIX_ENFORCE_NO_NATIVE=
        export CC=/usr/bin/gcc
      '';
      fetchurlBoot = fetchurl;
      inherit cc mkDerivationFromStdenv;
      hasCC = false;
    };

  # nixpkgs asks a compiler for its name, its libraries and its platform.
  cc = {
    type = "derivation";
    outputName = "out";
    out = "/usr";
    outPath = "/usr";
    name = "gcc-host";
    isGNU = true;
    isClang = false;
    bintools = {
      outPath = "/usr";
      isLLVM = false;
      dynamicLinker = "/lib64/ld-linux-x86-64.so.2";
    };
    targetPrefix = "";
    lib = "/usr";
    cc = "/usr";
  };
in
[
  (
    { }:
    rec {
      __raw = true;
      stdenv = makeStdenv {
        fetchurl = null;
        cc = null;
      };
      stdenvNoCC = stdenv;
      fetchurl = import (nixpkgs + "/pkgs/build-support/fetchurl") {
        inherit lib stdenvNoCC;
        curl = null;
        inherit (config) hashedMirrors rewriteURL;
      };
    }
  )
  (prevStage: {
    inherit config overlays;
    stdenv =
      makeStdenv {
        inherit (prevStage) fetchurl;
        cc = cc // {
          # A package of the system path. Its programs are in the guest's /usr/bin, but for nscd, which
          # the script for users calls.
          libc = prevStage.stdenv.mkDerivation {
            name = "libc";
            buildCommand = ''
              mkdir -p "$out/bin"
              ln -s /usr/bin/true "$out/bin/nscd"
            '';
          };
        };
      }
      // {
        inherit (prevStage) fetchurl;
      };
  })
]
