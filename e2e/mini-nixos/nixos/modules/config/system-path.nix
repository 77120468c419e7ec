# Programs and variables for all users.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkOption types;
  inherit (import ../../lib/option.nix { inherit lib; }) option required;
  cfg = config.environment;
  variable = types.attrsOf (
    types.nullOr (
      types.oneOf [
        (types.listOf (
          types.oneOf [ types.int types.str types.path ]
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
    systemPackages =
      option (types.listOf types.package) [ ]
        "Packages for all users, below /run/current-system/sw.";
    defaultPackages = option (types.listOf types.package) [ ] "Packages that can be left out; none here.";
    pathsToLink = option (types.listOf types.str) [ ] "Directories of packages to link into the system's.";
    variables = mkOption {
      type = variable;
      default = { };
      apply = lib.mapAttrs (_: joined);
      description = "Variables of login shells.";
    };
    sessionVariables = mkOption {
      type = variable;
      default = { };
      apply = lib.mapAttrs (_: joined);
      description = "Variables of every session.";
    };
    shellAliases =
      option (types.attrsOf (types.nullOr (types.either types.str types.path))) { }
        "Aliases of interactive shells.";
    shells =
      option (types.listOf (types.either types.shellPackage types.path)) [ ]
        "Shells that users may have; the guest's list stays.";
  };

  options.system.path = required types.package "The packages in one tree.";

  config = {
    environment.pathsToLink = [ "/bin" "/etc" "/lib" "/sbin" "/share" ];

    system.path = pkgs.buildEnv {
      name = "system-path";
      paths = lib.unique (
        cfg.systemPackages
        ++ cfg.defaultPackages
        ++ [ pkgs.bash pkgs.coreutils ]
      );
      inherit (cfg) pathsToLink;
    };

    environment.etc."profile.d/nixos.sh".text =
      ''
        # The guest's own programs come after the system's.
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
