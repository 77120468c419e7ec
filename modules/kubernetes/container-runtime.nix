# The container runtime: containerd or CRI-O.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkDefault mkOption types;
  cfg = config.nixbench.kubernetes;
  runtime = cfg.containerRuntime;

  # The pause image of each kubeadm release, so that the runtime needs no second one.
  pause = {
    "1.31" = "3.10";
    "1.32" = "3.10";
    "1.33" = "3.10";
    "1.34" = "3.10.1";
    "1.35" = "3.10.1";
  };
  release = lib.versions.majorMinor cfg.version;
in
{
  # interface
  options.nixbench.kubernetes.containerRuntime = {
    name = mkOption {
      type = types.enum [
        "containerd"
        "cri-o"
      ];
      default = "containerd";
      example = "cri-o";
      description = ''
        The program that runs containers. More settings are in `virtualisation.containerd` and
        `virtualisation.cri-o`. The tests run clusters with both.
      '';
    };
    pauseImage = mkOption {
      type = types.nullOr types.str;
      default = if pause ? ${release} then "registry.k8s.io/pause:${pause.${release}}" else null;
      defaultText = lib.literalMD "the pause image of this release of kubeadm";
      example = "registry.example.org/pause:3.10";
      description = "Image that holds a pod's namespaces; with null, the runtime's own default.";
    };
    socket = mkOption {
      type = types.str;
      default =
        {
          containerd = "unix:///run/containerd/containerd.sock";
          cri-o = "unix:///var/run/crio/crio.sock";
        }
        .${runtime.name};
      defaultText = lib.literalMD "the socket of the chosen runtime";
      example = "unix:///run/containerd/containerd.sock";
      description = "Socket of the runtime.";
    };
    unit = mkOption {
      type = types.str;
      internal = true;
      readOnly = true;
      default =
        {
          containerd = "containerd.service";
          cri-o = "crio.service";
        }
        .${runtime.name};
      description = "The runtime's unit.";
    };
  };

  # implementation
  config = lib.mkIf (cfg.role != null) (
    lib.mkMerge [
      (lib.mkIf (runtime.name == "containerd") {
        virtualisation.containerd.enable = true;
        virtualisation.containerd.settings.plugins."io.containerd.grpc.v1.cri" = {
          containerd.runtimes.runc = {
            runtime_type = mkDefault "io.containerd.runc.v2";
            # As for the kubelet: two managers of one cgroup tree conflict.
            options.SystemdCgroup = mkDefault true;
          };
          # CNI plugins that run as pods install programs, so the folder must be writable.
          cni.bin_dir = mkDefault "/opt/cni/bin";
        }
        // lib.optionalAttrs (runtime.pauseImage != null) { sandbox_image = mkDefault runtime.pauseImage; };
      })
      (lib.mkIf (runtime.name == "cri-o") {
        virtualisation.cri-o.enable = true;
        virtualisation.cri-o.settings.crio = {
          # In addition to NixOS' own folders.
          network.plugin_dirs = [ "/opt/cni/bin" ];
        }
        // lib.optionalAttrs (runtime.pauseImage != null) {
          image.pause_image = mkDefault runtime.pauseImage;
        };
        # NixOS installs CRI-O's own network there. Until the cluster's network is installed, pods would get addresses in it,
        # which other nodes cannot reach.
        environment.etc = {
          "cni/net.d/10-crio-bridge.conflist".enable = false;
          "cni/net.d/99-loopback.conflist".enable = false;
        };
      })
      {
        # One folder for the standard plugins, as links, and for plugins that pods install.
        systemd.tmpfiles.settings.nixbench-cni = {
          "/opt/cni".d.mode = "0755";
          "/opt/cni/bin".d.mode = "0755";
        }
        // lib.genAttrs (map (plugin: "/opt/cni/bin/${plugin}") cfg.cni.plugins) (
          path: { "L+".argument = "${pkgs.cni-plugins}/bin/${baseNameOf path}"; }
        );
      }
    ]
  );
}
