# Programs and variables for everyone.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.environment;
  variable = types.attrsOf (
    types.nullOr (
      types.oneOf [
        (types.listOf (
          types.oneOf [
            types.int
            types.str
            types.path
          ]
        ))
        types.int
        types.str
        types.path
      ]
    )
  );
  joined = v: if builtins.isList v then lib.concatMapStringsSep ":" toString v else toString v;
in
{
  options.environment = {
    systemPackages = mkOption {
      type = types.listOf types.package;
      default = [ ];
      example = lib.literalExpression "[ pkgs.hello ]";
      description = "Packages for all users, below /run/current-system/sw.";
    };
    defaultPackages = mkOption {
      type = types.listOf types.package;
      default = [ ];
      description = "Packages that can be left out; none here.";
    };
    pathsToLink = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "/share/icons" ];
      description = "Directories of packages to link into the system's.";
    };
    variables = mkOption {
      type = variable;
      default = { };
      apply = lib.mapAttrs (_: joined);
      example = {
        EDITOR = "vi";
      };
      description = "Variables of login shells.";
    };
    sessionVariables = mkOption {
      type = variable;
      default = { };
      apply = lib.mapAttrs (_: joined);
      description = "Variables of every session.";
    };
    shellAliases = mkOption {
      type = types.attrsOf (types.nullOr (types.either types.str types.path));
      default = { };
      example = {
        ll = "ls -l";
      };
      description = "Aliases of interactive shells.";
    };
    shells = mkOption {
      type = types.listOf (types.either types.shellPackage types.path);
      default = [ ];
      description = "Shells that users may have; the guest's list stays.";
    };
  };

  options.system.path = mkOption {
    type = types.package;
    internal = true;
    description = "The packages in one tree.";
  };

  config = {
    environment.pathsToLink = [
      "/bin"
      "/etc"
      "/lib"
      "/sbin"
      "/share"
    ];

    system.path = pkgs.buildEnv {
      name = "system-path";
      paths = lib.unique (
        cfg.systemPackages
        ++ cfg.defaultPackages
        ++ [
          pkgs.bash
          pkgs.coreutils
        ]
      );
      inherit (cfg) pathsToLink;
    };

    environment.etc."profile.d/nixos.sh".text =
      ''
        # The guest's own programs stay where they are, after ours.
        case :$PATH: in *:/run/current-system/sw/bin:*) ;; *) PATH=/run/current-system/sw/bin:$PATH ;; esac
        export PATH
      ''
      + lib.concatStrings (
        lib.mapAttrsToList (n: v: "export ${n}=${lib.escapeShellArg v}\n") (
          lib.filterAttrs (_: v: v != "") (cfg.sessionVariables // cfg.variables)
        )
      )
      + lib.concatStrings (
        lib.mapAttrsToList (n: v: "alias ${n}=${lib.escapeShellArg v}\n") (
          lib.filterAttrs (_: v: v != null) cfg.shellAliases
        )
      );
  };
}
