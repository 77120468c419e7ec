# nixpkgs' names for the programs of the Debian guest. Each package is a store path of links into
# the guest's /usr. Packages of the mini NixOS are such paths already, and are taken from there.
# Only packages that NixOS modules use are here; all other packages keep nixpkgs' definition, and
# cannot be built (see ./stages.nix).
{
  # As in ./default.nix.
  guest,
  nixpkgs,
  switch,
}:
final: prev:
let
  # Names in an overlay must not depend on `final`.
  inherit (prev) lib;

  # Modules select outputs of a package, and override how it is built.
  package =
    p:
    let
      self =
        p
        // lib.genAttrs [ "out" "bin" "dev" "lib" "man" "doc" "info" "terminfo" ] (_: self)
        // {
          override = _: self;
          overrideAttrs = _: self;
        };
    in
    self;

  mini = import ../mini-nixos/pkgs/packages.nix final prev;

  # build NAME PASSTHRU SCRIPT: a package of the files that a script writes to $out.
  build =
    pname: passthru: script:
    package (
      final.runCommandLocal "${pname}-debian" {
        passthru = {
          inherit pname;
          version = "0-debian";
        }
        // passthru;
        meta.mainProgram = passthru.mainProgram or pname;
      } script
    );

  # link NAME PASSTHRU LINKS: a package of links, given as names in it and paths of the guest.
  link =
    pname: passthru: links:
    build pname passthru (
      ''
        mkdir -p "$out"
      ''
      + lib.concatStrings (
        lib.mapAttrsToList (to: from: ''
          mkdir -p "$(dirname "$out/${to}")"
          ln -s ${from} "$out/${to}"
        '') links
      )
    );

  programLinks =
    programs:
    lib.listToAttrs (
      map (p: lib.nameValuePair "bin/${baseNameOf p}" (if lib.hasPrefix "/" p then p else "/usr/bin/${p}")) programs
    );
  program = pname: programs: link pname { mainProgram = baseNameOf (lib.head programs); } (programLinks programs);
  empty = pname: link pname { } { };

  pamModules =
    pname: modules:
    build pname { } ''
      mkdir -p "$out/bin" "$out/lib/security" "$out/lib/tmpfiles.d"
      ln -s /usr/sbin/unix_chkpwd "$out/bin"
      for module in ${toString modules}; do
        ln -s "/usr/lib/x86_64-linux-gnu/security/$module.so" "$out/lib/security"
      done
    '';

  # guestProgram PATH: a script that runs a program of the guest, also on the computer that builds,
  # where modules check configuration files with it.
  guestProgram =
    path:
    final.writeShellScript (baseNameOf path) ''
      [ ! -e ${guest}${path} ] || exec ${guest}/usr/lib64/ld-linux-x86-64.so.2 --argv0 ${path} \
        --library-path ${guest}/usr/lib/x86_64-linux-gnu ${guest}${path} "$@"
      exec ${path} "$@"
    '';

  # Files that NixOS replaces in /etc and /usr/bin by links to the package. guest-nixos has copies.
  copies = "/usr/lib/nixbench-nixos";
in
lib.mapAttrs (_: package) (
  removeAttrs mini [
    "fromHost"
    "hello"
    "linuxPackages"
    "linuxPackagesFor"
    "linuxPackages_6_12"
    "linuxPackages_latest"
    "linux_6_12"
    "linux_latest"
    "makeKernel"
    "runtimeShell"
  ]
)
// {
  systemd = import ./systemd.nix { inherit build final guest lib; };
  systemdMinimal = final.systemd;
  systemdLibs = final.systemd;

  # `sh` is a link to bash: a link to /bin/sh would be a loop, since NixOS makes /bin/sh a link to
  # this package.
  bash = link "bash" { shellPath = "/bin/bash"; } {
    "bin/bash" = "/usr/bin/bash";
    "bin/sh" = "/usr/bin/bash";
  };
  bashInteractive = final.bash;
  bashNonInteractive = final.bash;
  runtimeShell = "${final.bash}/bin/bash";
  runtimeShellPackage = final.bash;
  coreutils = link "coreutils" { } (programLinks mini.coreutils.programs // { "bin/env" = "${copies}/env"; });
  coreutils-full = final.coreutils;

  util-linux = package mini.util-linux // {
    lastlog = pamModules "lastlog2" [ "pam_lastlog2" ];
    withPatches = final.util-linux;
  };
  util-linuxMinimal = final.util-linux;
  shadow = link "shadow" { } (
    programLinks (mini.shadow.programs ++ [ "chage" "chsh" "gpasswd" "newgrp" "sg" "/usr/sbin/groupmems" ])
  ) // {
    shellPath = "/bin/nologin";
    su = final.shadow;
  };
  perl = program "perl" [ "perl" ] // {
    withPackages = _: final.perl;
  };

  nix = build "nix" { version = "2.26.3"; } ''
    mkdir -p "$out/bin" "$out/lib/systemd/system" "$out/lib/tmpfiles.d"
    for program in ${toString mini.nix.programs}; do
      ln -s "/usr/bin/$program" "$out/bin"
    done
    ln -sf ${guestProgram "/usr/bin/nix"} "$out/bin/nix"
    cp ${guest}/usr/lib/systemd/system/nix-daemon.* "$out/lib/systemd/system"
    cp ${guest}/usr/lib/tmpfiles.d/nix-daemon.conf "$out/lib/tmpfiles.d"
  '';
  openssh = link "openssh" { } (
    programLinks mini.openssh.programs // { "bin/sshd" = guestProgram "/usr/sbin/sshd"; }
  );
  sudo = link "sudo" { } (
    programLinks [ "sudo" "sudoedit" "/usr/sbin/visudo" ] // { "sbin/visudo" = "/usr/sbin/visudo"; }
  );
  containerd = link "containerd" { version = "1.7.24"; } (
    programLinks mini.containerd.programs // { "bin/containerd" = guestProgram "/usr/bin/containerd"; }
  );

  # Parts of NixOS.
  switch-to-configuration-ng = build "switch-to-configuration" { } ''
    install -D -m 755 ${builtins.path { path = switch; name = "switch-to-configuration"; }} "$out/bin/switch-to-configuration"
  '';
  # Its Python modules, as they are in the source tree.
  nixos-rebuild-ng = build "nixos-rebuild" { } ''
    mkdir -p "$out/bin"
    cat > "$out/bin/nixos-rebuild" <<'END'
    #!${final.runtimeShell}
    PYTHONPATH=${nixpkgs + "/pkgs/by-name/ni/nixos-rebuild-ng/src"} exec /usr/bin/python3 -m nixos_rebuild "$@"
    END
    chmod +x "$out/bin/nixos-rebuild"
  '';

  dbus = build "dbus" { } ''
    mkdir -p "$out/bin" "$out/libexec" "$out/share" "$out/etc/systemd"
    for name in daemon monitor run-session send update-activation-environment uuidgen; do
      ln -s "/usr/bin/dbus-$name" "$out/bin"
    done
    ln -s /usr/lib/dbus-1.0/dbus-daemon-launch-helper "$out/libexec"
    cp -r ${guest}/usr/share/dbus-1 "$out/share/dbus-1"
    for kind in system user; do
      mkdir -p "$out/etc/systemd/$kind"
      cp ${guest}/usr/lib/systemd/$kind/dbus.{service,socket} "$out/etc/systemd/$kind"
    done
  '';
  pam = pamModules "linux-pam" [
    "pam_access" "pam_deny" "pam_env" "pam_exec" "pam_faildelay" "pam_faillock" "pam_keyinit" "pam_lastlog"
    "pam_limits" "pam_loginuid" "pam_mkhomedir" "pam_motd" "pam_permit" "pam_rootok" "pam_shells"
    "pam_succeed_if" "pam_umask" "pam_unix" "pam_warn" "pam_wheel"
  ];
  cacert =
    link "cacert" { p11kit = link "trust-source" { } { "etc/ssl/trust-source" = "/usr/share/ca-certificates"; }; }
      { "etc/ssl/certs/ca-bundle.crt" = "${copies}/ca-certificates.crt"; };
  tzdata = link "tzdata" { } { "share/zoneinfo" = "/usr/share/zoneinfo"; };
  iana-etc = build "iana-etc" { } ''
    mkdir -p "$out/etc"
    touch "$out/etc/protocols" "$out/etc/services"
  '';
  linuxHeaders = link "linux-headers" { } { "include" = "/usr/include"; };
  host = empty "host";
  getent = program "getent" [ "getent" ];
  libcap = program "libcap" [ "/usr/sbin/setcap" "/usr/sbin/getcap" "/usr/sbin/capsh" ];
  gnupatch = program "gnupatch" [ "patch" ];
  libxslt = program "libxslt" [ "xsltproc" ];

  getconf = program "getconf" [ "getconf" ];
  lndir = final.writeShellScriptBin "lndir" ''
    [ "$1" != -silent ] || shift
    cp -rsn "$1/." "''${2:-.}"
  '';

  # The C program of the setuid wrappers includes a list of glibc: see ld.so(8).
  srcOnly =
    p:
    if p.pname or "" != "glibc" then
      prev.srcOnly p
    else
      final.stdenv.mkDerivation {
        name = "glibc-source";
        unpackPhase = ''
          mkdir -p sysdeps/generic
          printf '#define UNSECURE_ENVVARS' > sysdeps/generic/unsecvars.h
          for name in GCONV_PATH GETCONF_DIR GLIBC_TUNABLES HOSTALIASES LD_AUDIT LD_BIND_NOT LD_BIND_NOW LD_DEBUG \
            LD_DEBUG_OUTPUT LD_DYNAMIC_WEAK LD_HWCAP_MASK LD_LIBRARY_PATH LD_ORIGIN_PATH LD_PRELOAD LD_PROFILE \
            LD_PROFILE_OUTPUT LD_SHOW_AUXV LD_WARN LOCALDOMAIN LOCPATH MALLOC_TRACE NIS_PATH NLSPATH RESOLV_HOST_CONF \
            RES_OPTIONS TMPDIR TZDIR; do
            printf ' "%s\\0"' "$name"
          done >> sysdeps/generic/unsecvars.h
        '';
      };

  # nixpkgs' writer of TOML is a program in Rust.
  formats = prev.formats // {
    toml =
      args:
      prev.formats.toml args
      // {
        inherit ((import ../mini-nixos/pkgs/formats.nix final prev).formats.toml args) generate;
      };
  };

  # Scripts are not checked.
  shellcheck-minimal = package (final.writeShellScriptBin "shellcheck" "") // {
    compiler.bootstrapAvailable = false;
  };
  shellcheck = final.shellcheck-minimal;
}
// lib.genAttrs [ "bzip2" "cpio" "dash" "rsync" "time" "which" ] (name: program name [ name ])
# Packages that a node of the tests does not use.
// lib.genAttrs [
  "acl" "attr" "glibc" "glibcLocales" "ncurses" "mkpasswd" "less" "xauth" "nano" "strace"
  "kexec-tools" "logrotate" "netcat" "nixos-firewall-tool" "man-db" "nix-info" "dosfstools" "nixos-init"
] empty
