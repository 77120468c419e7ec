# The guest's sudo, if it has one; what is said here becomes a file in sudoers.d.
{ config, lib, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  cfg = config.security.sudo;
in
{
  options.security.sudo = {
    enable = option types.bool true "Whether sudo works.";
    wheelNeedsPassword = option types.bool true "Whether members of wheel type their password.";
    execWheelOnly = option types.bool false "Whether only wheel may run sudo; not enforced here.";
    extraConfig = option types.lines "" "Lines at the end of sudoers.";
  };

  config = lib.mkIf cfg.enable {
    environment.etc."sudoers.d/50-nixos" = {
      mode = "0440";
      text = ''
        %wheel ALL=(ALL:ALL) ${lib.optionalString (!cfg.wheelNeedsPassword) "NOPASSWD: "}ALL
      ''
      + cfg.extraConfig;
    };
  };
}
