# Stand-ins for what builds programs: they evaluate, and take part in flakes and their
# checks, but compile nothing.
final: _prev:
let
  inherit (final) lib;

  # A package whose program is the one of that name which is on PATH when it runs. All
  # that a real build would be given is given to this one, so that it is evaluated.
  buildGoModule =
    {
      pname,
      version,
      src,
      vendorHash,
      ldflags ? [ ],
      env ? { },
      meta ? { },
      nativeBuildInputs ? [ ],
      buildInputs ? [ ],
      postInstall ? "",
      subPackages ? [ "." ],
      doCheck ? true,
    }:
    let
      program = meta.mainProgram or pname;
    in
    assert lib.assertMsg (
      builtins.match "sha256-[A-Za-z0-9+/]{43}=" vendorHash != null
    ) "vendorHash of ${pname} is no hash: ${vendorHash}";
    final.runCommand "${pname}-${version}"
      (env // {
        inherit
          doCheck
          ldflags
          meta
          postInstall
          src
          subPackages
          vendorHash
          ;
        inputs = nativeBuildInputs ++ buildInputs;
        passthru = { inherit pname version vendorHash src; };
      })
      ''
        mkdir -p "$out/bin"
        printf '#!/bin/sh\nexec ${program} "$@"\n' > "$out/bin/${program}"
        chmod +x "$out/bin/${program}"
      '';

  named = pname: version: final.runCommand "${pname}-${version}" { passthru = { inherit pname version; }; } ''
    mkdir "$out"
  '';
in
{
  inherit buildGoModule;
  go = named "go" "1.26.0";
  gopls = named "gopls" "0-stand-in";
  installShellFiles = named "install-shell-files" "0-stand-in";
  libvirt = named "libvirt" "0-stand-in";
  pkg-config = named "pkg-config" "0-stand-in";
  nixfmt-tree = final.writeShellScriptBin "treefmt" "exit 0";

  mkShell =
    {
      name ? "nix-shell",
      packages ? [ ],
      inputsFrom ? [ ],
    }:
    final.runCommand name { inputs = packages ++ inputsFrom; } ''
      mkdir "$out"
    '';
}
