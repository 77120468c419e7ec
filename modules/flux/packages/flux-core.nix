# The package flux-core: the broker, the simple scheduler, and the commands.
{
  lib,
  stdenv,
  fetchFromGitHub,
  autoreconfHook,
  makeWrapper,
  pkg-config,
  flux-security,
  hwloc,
  jansson,
  libarchive,
  libuuid,
  lua5_1,
  lz4,
  ncurses,
  python3,
  sqlite,
  systemdLibs,
  zeromq,
}:
let
  python = python3.withPackages (p: [
    p.cffi
    p.ply
    p.pyyaml
    p.setuptools
  ]);
  lua = lua5_1.withPackages (p: [ p.luaposix ]);
in
stdenv.mkDerivation (finalAttrs: {
  pname = "flux-core";
  version = "0.88.0";

  src = fetchFromGitHub {
    owner = "flux-framework";
    repo = "flux-core";
    tag = "v${finalAttrs.version}";
    # Remove one large file of the tests. The hash was computed from a copy of the repository without that file.
    postFetch = ''
      rm "$out/t/resource/resource.eventlog.thing1"
    '';
    hash = "sha256-BczKx7LE2Zvckqt+A2fdhAAHEJXdGag/NZZqCodmtmg=";
  };

  # Set the version: the build would read it from git, and the source is no git repository.
  env.FLUX_VERSION = finalAttrs.version;

  postPatch = ''
    patchShebangs --build .
  '';

  strictDeps = true;
  nativeBuildInputs = [
    autoreconfHook
    lua
    makeWrapper
    pkg-config
    python
  ];
  buildInputs = [
    flux-security
    hwloc
    jansson
    libarchive
    libuuid
    lua
    lz4
    ncurses
    python
    sqlite
    systemdLibs
    zeromq
  ];

  configureFlags = [
    "--localstatedir=/var"
    "--disable-docs"
    "--with-flux-security"
    "--without-systemdsystemunitdir"
    "PYTHON=${python}/bin/python3"
  ];
  enableParallelBuilding = true;

  # The shell of a job and the commands in Lua need luaposix.
  postFixup = ''
    wrapProgram "$out/bin/flux" --prefix LUA_PATH ';' "$(${lua}/bin/lua -e 'print(package.path)')" \
      --prefix LUA_CPATH ';' "$(${lua}/bin/lua -e 'print(package.cpath)')"
  '';

  meta = {
    description = "Core services and commands of the resource manager Flux";
    homepage = "https://github.com/flux-framework/flux-core";
    license = lib.licenses.lgpl3Only;
    mainProgram = "flux";
    platforms = lib.platforms.linux;
  };
})
