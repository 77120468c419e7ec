# nixbench as a package: `callPackage ./package.nix { }`.
{
  lib,
  stdenv,
  buildGoModule,
  go,
  installShellFiles,
  libvirt,
  pkg-config,
  # `nixbench version` prints both. The flake passes its commit.
  version ? "0.1.0-dev",
  commit ? "",
}:
let
  minimum = "1.26";
  # The files that the Go build reads. Other files, such as docs/, cause no new build.
  sources = [
    "bench"
    "cmd"
    "deploy"
    "e2e"
    "go.mod"
    "go.sum"
    "internal"
    "modules"
    "nixeval"
    "templates"
  ];
in
assert lib.assertMsg (lib.versionAtLeast go.version minimum)
  "nixbench needs Go ${minimum} or later, but this nixpkgs has Go ${go.version}; remove `inputs.nixbench.inputs.nixpkgs.follows`, so that nixbench uses its own nixpkgs, or follow a newer nixpkgs";
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

  # Run scripts/vendor-hash --write after go.mod or go.sum has changed.
  vendorHash = "sha256-8LlZ1tMl3Hr7I6zPeP3eFWlj8y/n0z+FP0nZ80W/CjU=";

  subPackages = [ "cmd/nixbench" ];
  nativeBuildInputs = [ installShellFiles ] ++ lib.optional stdenv.hostPlatform.isLinux pkg-config;
  buildInputs = lib.optional stdenv.hostPlatform.isLinux libvirt;
  # Without cgo, nixbench has no libvirt: on macOS it deploys to existing machines only.
  env = lib.optionalAttrs (!stdenv.hostPlatform.isLinux) { CGO_ENABLED = 0; };
  ldflags = [
    "-s"
    "-w"
    "-X main.version=${version}"
    "-X main.commit=${commit}"
  ];
  # The tests run Nix, which is not possible inside a Nix build.
  doCheck = false;

  postInstall = lib.optionalString (stdenv.buildPlatform.canExecute stdenv.hostPlatform) ''
    installShellCompletion --cmd nixbench \
      --bash <($out/bin/nixbench completion bash) \
      --zsh <($out/bin/nixbench completion zsh) \
      --fish <($out/bin/nixbench completion fish)
  '';

  meta = {
    description = "NixOS clusters from a hive and an empty hypervisor";
    homepage = "https://github.com/nixbench/nixbench";
    changelog = "https://github.com/nixbench/nixbench/blob/main/CHANGELOG.md";
    license = lib.licenses.asl20;
    mainProgram = "nixbench";
    platforms = lib.platforms.linux ++ lib.platforms.darwin;
  };
}
