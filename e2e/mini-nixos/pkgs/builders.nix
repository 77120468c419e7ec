# nixpkgs' trivial builders over one static busybox.
{ busyboxDir }:
final: _prev:
let
  inherit (final) lib;

  # Not itself a derivation: it must exist before anything can be built.
  tools = "${busyboxDir}/bin";

  # What a package carries besides the derivation.
  asPackage =
    drv: name: attrs:
    drv
    // {
      inherit name;
      meta = { inherit name; }
      // attrs.meta or { };
      passthru = attrs.passthru or { };
    }
    // attrs.passthru or { };

  run =
    name: env: script:
    let
      inputs = env.nativeBuildInputs or [ ] ++ env.buildInputs or [ ];
      drv = derivation (
        builtins.removeAttrs env [ "buildInputs" "meta" "nativeBuildInputs" "passthru" ]
        // {
          inherit name;
          inherit (final.stdenv.hostPlatform) system;
          # Not bin/busybox: the program looks at argv[0] to know which applet it is.
          builder = "${tools}/sh";
          args = [ "-euc" ". \"$buildCommandPath\"" ];
          PATH = lib.concatStringsSep ":" (map (p: "${p}/bin") inputs ++ [ tools ]);
          buildCommand = script;
          passAsFile = [ "buildCommand" ] ++ env.passAsFile or [ ];
          preferLocalBuild = true;
          allowSubstitutes = false;
        }
      );
    in
    asPackage drv name env;

  textFile =
    {
      name,
      text,
      executable ? false,
      destination ? "",
      checkPhase ? "",
      meta ? { },
      passthru ? { },
      derivationArgs ? { },
    }:
    run name
      (
        {
          inherit meta passthru text;
          passAsFile = [ "text" ];
        }
        // derivationArgs
      )
      ''
        target=$out${lib.escapeShellArg destination}
        mkdir -p "$(dirname "$target")"
        cat "$textPath" > "$target"
        ${lib.optionalString executable "chmod +x \"$target\""}
        ${checkPhase}
      '';

  link = to: from: ''
    mkdir -p "$out/$(dirname ${lib.escapeShellArg to})"
    ln -s ${lib.escapeShellArg "${from}"} "$out/"${lib.escapeShellArg to}
  '';

  # Directories merge, files and links of the first package win.
  merge = ''
    merge() {
      for entry in "$1"/* "$1"/.[!.]*; do
        [ -e "$entry" ] || [ -L "$entry" ] || continue
        to=$2/''${entry##*/}
        if [ -d "$entry" ] && [ ! -L "$entry" ]; then
          mkdir -p "$to"
          # A shell of its own: sh has no local loop variables.
          ( merge "$entry" "$to" )
        elif [ ! -e "$to" ] && [ ! -L "$to" ]; then
          ln -s "$entry" "$to"
        fi
      done
    }
  '';
in
{
  runCommand = run;
  runCommandLocal = run;

  writeTextFile = textFile;
  writeText = name: text: textFile { inherit name text; };
  writeTextDir =
    path: text:
    textFile {
      name = baseNameOf path;
      destination = "/${path}";
      inherit text;
    };
  writeScript =
    name: text:
    textFile { inherit name text; executable = true; };
  writeScriptBin =
    name: text:
    textFile {
      inherit name text;
      executable = true;
      destination = "/bin/${name}";
      meta.mainProgram = name;
    };
  writeShellScript =
    name: text:
    textFile {
      inherit name;
      executable = true;
      text = ''
        #!${final.runtimeShell}
        ${text}
      '';
    };
  writeShellScriptBin =
    name: text:
    textFile {
      inherit name;
      executable = true;
      destination = "/bin/${name}";
      text = ''
        #!${final.runtimeShell}
        ${text}
      '';
      meta.mainProgram = name;
    };
  writeShellApplication =
    {
      name,
      text,
      runtimeInputs ? [ ],
      runtimeEnv ? { },
      meta ? { },
      passthru ? { },
      bashOptions ? [ "errexit" "nounset" "pipefail" ],
      # Nothing is checked: there is no shellcheck here.
      ...
    }:
    textFile {
      inherit name passthru;
      executable = true;
      destination = "/bin/${name}";
      meta = { mainProgram = name; } // meta;
      text =
        "#!${final.runtimeShell}\n"
        + lib.concatMapStrings (o: "set -o ${o}\n") bashOptions
        + lib.concatMapAttrsStringSep "" (n: v: "export ${n}=${lib.escapeShellArg v}\n") runtimeEnv
        + lib.optionalString (runtimeInputs != [ ]) (
          "export PATH=\"${lib.makeBinPath runtimeInputs}:$PATH\"\n"
        )
        + "\n${text}\n";
    };

  linkFarm =
    name: entries:
    run name { } (
      "mkdir -p \"$out\"\n"
      + (
        if builtins.isAttrs entries then
          lib.concatStrings (lib.mapAttrsToList link entries)
        else
          lib.concatMapStrings (e: link e.name e.path) entries
      )
    );
  symlinkJoin =
    { name, paths, ... }@args:
    final.buildEnv args;

  # Unlike nixpkgs', silent about files that two packages share.
  buildEnv =
    {
      name,
      paths,
      pathsToLink ? [ "/" ],
      postBuild ? "",
      meta ? { },
      passthru ? { },
      ...
    }:
    run name { inherit meta passthru; } ''
      ${merge}
      mkdir -p "$out"
      ${lib.concatMapStrings (
        p:
        lib.concatMapStrings (
          sub:
          "if [ -d ${p}${sub} ]; then mkdir -p \"$out${sub}\"; merge ${p}${sub} \"$out${sub}\"; fi\n"
        ) pathsToLink
      ) (lib.sortOn (p: p.meta.priority or 5) paths)}
      ${postBuild}
    '';

  emptyFile = run "empty-file" { } ''touch "$out"'';
  emptyDirectory = run "empty-directory" { } ''mkdir "$out"'';

  busybox =
    let
      name = "busybox-1.35.0";
    in
    run name
      {
        meta.mainProgram = "busybox";
        passthru = { pname = "busybox"; version = "1.35.0"; shellPath = "/bin/sh"; };
      }
      ''
        mkdir -p "$out/bin"
        cp ${tools}/busybox "$out/bin/busybox"
        for applet in $("$out/bin/busybox" --list); do
          [ "$applet" = busybox ] || ln -s busybox "$out/bin/$applet"
        done
      '';
}
