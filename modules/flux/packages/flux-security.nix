# The package flux-security: it signs jobs, and starts jobs of users who do not own the instance.
{
  lib,
  stdenv,
  fetchFromGitHub,
  autoreconfHook,
  pkg-config,
  jansson,
  libsodium,
  libuuid,
  munge,
  pam,
}:
stdenv.mkDerivation (finalAttrs: {
  pname = "flux-security";
  version = "0.15.0";

  src = fetchFromGitHub {
    owner = "flux-framework";
    repo = "flux-security";
    tag = "v${finalAttrs.version}";
    hash = "sha256-Gv4wc3B3i9IkAJizyQoAVzWX/jq0mSouCtSdjKgO/bc=";
  };

  # Set the version: the build would read it from git, and the source is no git repository.
  postPatch = ''
    substituteInPlace configure.ac --replace-fail "git describe --always" "echo v${finalAttrs.version}"
  '';

  nativeBuildInputs = [
    autoreconfHook
    pkg-config
  ];
  buildInputs = [
    jansson
    libsodium
    libuuid
    munge
    pam
  ];

  # The programs read their configuration from /etc, and not from the Nix store.
  configureFlags = [
    "--sysconfdir=/etc"
    "--localstatedir=/var"
    "--disable-docs"
  ];
  installFlags = [ "sysconfdir=${placeholder "out"}/etc" ];

  meta = {
    description = "Signatures of jobs, and the program that starts jobs of other users, for Flux";
    homepage = "https://github.com/flux-framework/flux-security";
    license = lib.licenses.lgpl3Only;
    platforms = lib.platforms.linux;
  };
})
