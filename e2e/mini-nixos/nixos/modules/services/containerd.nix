# virtualisation.containerd, with the guest's containerd.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.virtualisation.containerd;
  toml = pkgs.formats.toml { };
  configFile =
    if cfg.configFile == null then toml.generate "containerd.toml" cfg.settings else cfg.configFile;
  args = {
    config = toString configFile;
  }
  // cfg.args;
in
{
  options.virtualisation.containerd = {
    enable = lib.mkEnableOption "containerd container runtime";
    configFile = mkOption {
      type = types.nullOr types.path;
      default = null;
      description = "Configuration file, instead of settings.";
    };
    settings = mkOption {
      inherit (toml) type;
      default = { };
      description = "Settings of containerd.";
    };
    args = mkOption {
      type = types.attrsOf types.str;
      default = { };
      description = "Extra arguments of containerd.";
    };
  };

  config = lib.mkIf cfg.enable {
    warnings =
      lib.optional (cfg.configFile != null)
        "`virtualisation.containerd.configFile` is deprecated. use `virtualisation.containerd.settings` instead.";

    virtualisation.containerd.settings = {
      version = 2;
      plugins."io.containerd.grpc.v1.cri".containerd.snapshotter = lib.mkOptionDefault "overlayfs";
      plugins."io.containerd.grpc.v1.cri".cni.bin_dir = lib.mkOptionDefault "${pkgs.cni-plugins}/bin";
    };

    environment.systemPackages = [ pkgs.containerd ];

    systemd.services.containerd = {
      description = "containerd - container runtime";
      wantedBy = [ "multi-user.target" ];
      after = [
        "network.target"
        "local-fs.target"
        "dbus.service"
      ];
      path = [
        pkgs.containerd
        pkgs.runc
        pkgs.iptables
      ];
      serviceConfig = {
        ExecStart = "${pkgs.containerd}/bin/containerd ${
          lib.concatStringsSep " " (lib.mapAttrsToList (n: v: "--${n} ${v}") args)
        }";
        Delegate = "yes";
        KillMode = "process";
        Type = "notify";
        Restart = "always";
        RestartSec = "10";
        LimitNPROC = "infinity";
        LimitCORE = "infinity";
        TasksMax = "infinity";
        OOMScoreAdjust = -999;
        StateDirectory = "containerd";
        RuntimeDirectory = "containerd";
        RuntimeDirectoryPreserve = "yes";
      };
      unitConfig = {
        StartLimitBurst = "16";
        StartLimitIntervalSec = "120s";
      };
    };
  };
}
