# The guest's sudo, if it has one; what is said here becomes a file in sudoers.d.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.security.sudo;
in
{
  options.security.sudo = {
    enable = mkOption {
      type = types.bool;
      default = true;
      description = "Whether sudo works.";
    };
    wheelNeedsPassword = mkOption {
      type = types.bool;
      default = true;
      description = "Whether members of wheel type their password.";
    };
    execWheelOnly = mkOption {
      type = types.bool;
      default = false;
      description = "Whether only wheel may run sudo; not enforced here.";
    };
    extraConfig = mkOption {
      type = types.lines;
      default = "";
      description = "Lines at the end of sudoers.";
    };
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
