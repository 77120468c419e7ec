{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  cfg = config.services.qemuGuest;
in
{
  options.services.qemuGuest = {
    enable = lib.mkEnableOption "the agent through which a hypervisor asks";
    package = option types.package pkgs.qemu_kvm.ga "The agent's package.";
  };

  config = lib.mkIf cfg.enable {
    systemd.services.qemu-guest-agent = {
      description = "QEMU guest agent";
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
