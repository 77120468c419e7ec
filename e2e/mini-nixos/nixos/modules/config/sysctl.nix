{ config, lib, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  value = types.nullOr (
    types.oneOf [ types.bool types.str types.int ]
  );
  show =
    v:
    if v == true then
      "1"
    else if v == false then
      "0"
    else
      toString v;
in
{
  options.boot.kernel.sysctl = option (types.submodule {
      freeformType = types.attrsOf value;
      options = {
        "net.core.rmem_max" =
          option (types.nullOr types.ints.unsigned) null
            "The largest receive buffer of a socket.";
        "net.core.wmem_max" =
          option (types.nullOr types.ints.unsigned) null
            "The largest send buffer of a socket.";
      };
    }) { } "Kernel parameters set at run time; null leaves one alone.";

  config = {
    environment.etc."sysctl.d/60-nixos.conf".text = lib.concatStrings (
      lib.mapAttrsToList (n: v: lib.optionalString (v != null) "${n}=${show v}\n") config.boot.kernel.sysctl
    );
    # The guest's own service reads sysctl.d; it runs again when the system's file changes.
    systemd.services.systemd-sysctl = {
      restartTriggers = [ config.environment.etc."sysctl.d/60-nixos.conf".source ];
    };
  };
}
