# virtualisation.cri-o, with the guest's CRI-O.
{ config, lib, pkgs, ... }:
let
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  cfg = config.virtualisation.cri-o;
  toml = pkgs.formats.toml { };
  json = pkgs.formats.json { };
in
{
  options.virtualisation.cri-o = {
    enable = lib.mkEnableOption "CRI-O";
    settings = option toml.type { } "Settings of CRI-O.";
  };

  config = lib.mkIf cfg.enable {
    virtualisation.cri-o.settings.crio = {
      storage_driver = "overlay";
      network.plugin_dirs = [ "${pkgs.cni-plugins}/bin" ];
      runtime = {
        cgroup_manager = "systemd";
        log_level = "info";
        manage_ns_lifecycle = true;
        pinns_path = "${pkgs.cri-o}/bin/pinns";
        hooks_dir = [ ];
      };
    };

    environment.etc = {
      "crio/crio.conf.d/00-default.conf".source = toml.generate "00-default.conf" cfg.settings;
      # CRI-O's package brings a network of its own, and NixOS puts it there.
      "cni/net.d/10-crio-bridge.conflist".source = json.generate "10-crio-bridge.conflist" {
        cniVersion = "1.0.0";
        name = "crio";
        plugins = [
          {
            type = "bridge";
            bridge = "cni0";
            isGateway = true;
            ipMasq = true;
            hairpinMode = true;
            ipam = {
              type = "host-local";
              ranges = [ [ { subnet = "10.85.0.0/16"; } ] ];
              routes = [ { dst = "0.0.0.0/0"; } ];
            };
          }
        ];
      };
      "cni/net.d/99-loopback.conflist".source = json.generate "99-loopback.conflist" {
        cniVersion = "1.0.0";
        name = "loopback";
        plugins = [ { type = "loopback"; } ];
      };
      # virtualisation.containers
      "containers/policy.json".source = json.generate "policy.json" {
        default = [ { type = "insecureAcceptAnything"; } ];
      };
      "containers/registries.conf".source = toml.generate "registries.conf" {
        unqualified-search-registries = [ "docker.io" "quay.io" ];
      };
      "containers/storage.conf".source = toml.generate "storage.conf" {
        storage = {
          driver = "overlay";
          graphroot = "/var/lib/containers/storage";
          runroot = "/run/containers/storage";
        };
      };
    };

    environment.systemPackages = [ pkgs.cri-o pkgs.cri-tools ];
    systemd.services.crio = {
      description = "CRI-O";
      wantedBy = [ "multi-user.target" ];
      after = [ "network.target" ];
      # nixpkgs' package has all of this on its PATH by itself, and crun.
      path = [ pkgs.cri-o pkgs.runc pkgs.conmon pkgs.iptables pkgs.util-linux ];
      restartTriggers = [ config.environment.etc."crio/crio.conf.d/00-default.conf".source ];
      serviceConfig = {
        Type = "notify";
        ExecStart = "${pkgs.cri-o}/bin/crio";
        ExecReload = "${pkgs.util-linux}/bin/kill -s HUP $MAINPID";
        TasksMax = "infinity";
        LimitNOFILE = "1048576";
        LimitNPROC = "1048576";
        LimitCORE = "infinity";
        OOMScoreAdjust = "-999";
        TimeoutStartSec = "0";
        Restart = "on-abnormal";
      };
    };
  };
}
