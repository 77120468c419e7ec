# virtualisation.containerd, with the guest's containerd.
{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  cfg = config.virtualisation.containerd;
  toml = pkgs.formats.toml { };
  configFile =
    if cfg.configFile == null then toml.generate "containerd.toml" cfg.settings else cfg.configFile;
  args = { config = toString configFile; }
  // cfg.args;
in
{
  options.virtualisation.containerd = {
    enable = lib.mkEnableOption "containerd";
    configFile = option (types.nullOr types.path) null "Configuration file, instead of settings.";
    settings = option toml.type { } "Settings of containerd.";
    args = option (types.attrsOf types.str) { } "Extra arguments of containerd.";
  };

  config = lib.mkIf cfg.enable {
    warnings =
      lib.optional (cfg.configFile != null)
        "virtualisation.containerd.configFile hides what virtualisation.containerd.settings says.";

    virtualisation.containerd.settings = {
      version = 2;
      plugins."io.containerd.grpc.v1.cri".containerd.snapshotter = lib.mkOptionDefault "overlayfs";
      plugins."io.containerd.grpc.v1.cri".cni.bin_dir = lib.mkOptionDefault "${pkgs.cni-plugins}/bin";
    };

    environment.systemPackages = [ pkgs.containerd ];

    systemd.services.containerd = {
      description = "containerd";
      wantedBy = [ "multi-user.target" ];
      after = [ "network.target" "local-fs.target" "dbus.service" ];
      path = [ pkgs.containerd pkgs.runc pkgs.iptables ];
      serviceConfig = {
        ExecStart = "${pkgs.containerd}/bin/containerd ${
          lib.concatStringsSep " " (lib.mapAttrsToList (n: v: "--${n} ${v}") args)
        }";
        Type = "notify";
        # Containers keep running during a restart, and have their own control groups.
        Delegate = true;
        KillMode = "process";
        Restart = "always";
        RestartSec = 5;
        StateDirectory = "containerd";
        RuntimeDirectory = "containerd";
        RuntimeDirectoryPreserve = true;
      };
    };
  };
}
