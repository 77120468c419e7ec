{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.qemuGuest;
in
{
  options.services.qemuGuest = {
    enable = lib.mkEnableOption "the qemu guest agent";
    package = mkOption {
      type = types.package;
      default = pkgs.qemu_kvm.ga;
      defaultText = lib.literalExpression "pkgs.qemu_kvm.ga";
      description = "The agent's package.";
    };
  };

  config = lib.mkIf cfg.enable {
    systemd.services.qemu-guest-agent = {
      description = "Run the QEMU Guest Agent";
      wantedBy = [ "multi-user.target" ];
      unitConfig.ConditionPathExists = "/dev/virtio-ports/org.qemu.guest_agent.0";
      serviceConfig = {
        ExecStart = "${cfg.package}/bin/qemu-ga --statedir /run/qemu-ga";
        RuntimeDirectory = "qemu-ga";
        Restart = "always";
        RestartSec = 0;
      };
    };
  };
}
