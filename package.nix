# nixbench as a package: `callPackage ./package.nix { }`.
{
  lib,
  stdenv,
  buildGoModule,
  go,
  installShellFiles,
  libvirt,
  pkg-config,
  # What `nixbench version` says; the flake knows.
  version ? "0.1.0-dev",
  commit ? "",
}:
let
  minimum = "1.26";
  # Everything that Go reads; a changed manual builds nothing.
  sources = [
    "bench"
    "cmd"
    "deploy"
    "e2e"
    "go.mod"
    "go.sum"
    "modules"
    "nixeval"
    "templates"
  ];
in
assert lib.assertMsg (lib.versionAtLeast go.version minimum)
  "nixbench is written in Go ${minimum}, but this nixpkgs has Go ${go.version}; let nixbench keep its own nixpkgs (no `inputs.nixbench.inputs.nixpkgs.follows`), or follow a newer one";
buildGoModule {
  pname = "nixbench";
  inherit version;

  src = builtins.path {
    name = "nixbench-source";
    path = ./.;
    filter =
      path: _:
      let
        below = lib.removePrefix "${toString ./.}/" path;
      in
      builtins.elem (builtins.head (lib.splitString "/" below)) sources;
  };

  # scripts/vendor-hash --write, after go.mod or go.sum has changed.
  vendorHash = "sha256-5aRLAkJa5FuNNDvuhz8RwhdlnBTd/h7yiUFmyoi7Iy8=";

  subPackages = [ "cmd/nixbench" ];
  nativeBuildInputs = [
    installShellFiles
    pkg-config
  ];
  buildInputs = [ libvirt ];
  ldflags = [
    "-s"
    "-w"
    "-X main.version=${version}"
    "-X main.commit=${commit}"
  ];
  # The tests run Nix, which a build of Nix cannot.
  doCheck = false;

  postInstall = lib.optionalString (stdenv.buildPlatform.canExecute stdenv.hostPlatform) ''
    installShellCompletion --cmd nixbench \
      --bash <($out/bin/nixbench completion bash) \
      --zsh <($out/bin/nixbench completion zsh) \
      --fish <($out/bin/nixbench completion fish)
    $out/bin/nixbench man man1
    installManPage man1/*.1
  '';

  meta = {
    description = "NixOS clusters from a hive and an empty hypervisor";
    homepage = "https://github.com/nixbench/nixbench";
    changelog = "https://github.com/nixbench/nixbench/blob/main/CHANGELOG.md";
    license = lib.licenses.asl20;
    mainProgram = "nixbench";
    platforms = lib.platforms.linux;
  };
}
