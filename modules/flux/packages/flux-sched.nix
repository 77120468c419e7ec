# Fluxion, the scheduler that replaces the simple one of flux-core.
{
  lib,
  stdenv,
  fetchFromGitHub,
  cmake,
  pkg-config,
  boost,
  flux-core,
  hwloc,
  jansson,
  libedit,
  libuuid,
  python3,
  yaml-cpp,
}:
stdenv.mkDerivation (finalAttrs: {
  pname = "flux-sched";
  version = "0.54.0";

  src = fetchFromGitHub {
    owner = "flux-framework";
    repo = "flux-sched";
    tag = "v${finalAttrs.version}";
    hash = "sha256-Sp9/lt3ZiF2GDyTBTZlEaWQFgrpkzIRVUY0t5Wxq2P8=";
  };

  nativeBuildInputs = [
    cmake
    flux-core
    pkg-config
    (python3.withPackages (p: [
      p.jsonschema
      p.pyyaml
    ]))
  ];
  buildInputs = [
    boost
    flux-core
    hwloc
    jansson
    libedit
    libuuid
    yaml-cpp
  ];

  # Set the version: the build would read it from git, and the source is no git repository.
  cmakeFlags = [
    (lib.cmakeFeature "FLUX_SCHED_VER" finalAttrs.version)
    (lib.cmakeBool "ENABLE_DOCS" false)
  ];

  meta = {
    description = "Graph-based scheduler for Flux";
    homepage = "https://github.com/flux-framework/flux-sched";
    license = lib.licenses.lgpl3Only;
    platforms = lib.platforms.linux;
  };
})
