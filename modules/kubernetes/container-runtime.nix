# The container runtime of the node: containerd or CRI-O.
{
  config,
  lib,
  options,
  pkgs,
  ...
}:
let
  inherit (lib) mkDefault mkOption types;
  cfg = config.nixbench.kubernetes;
  runtime = cfg.containerRuntime;

  # The pause image that each release of kubeadm uses. The container runtime uses the same image, so that a node needs only one
  # pause image.
  pause = {
    "1.31" = "3.10";
    "1.32" = "3.10";
    "1.33" = "3.10";
    "1.34" = "3.10.1";
    "1.35" = "3.10.1";
    "1.36" = "3.10.2";
  };
  release = lib.versions.majorMinor cfg.version;
  newest = lib.last (lib.sort lib.versionOlder (lib.attrNames pause));
  hivesPauseImage =
    options.nixbench.kubernetes.containerRuntime.pauseImage.highestPrio < (lib.mkOptionDefault null).priority;
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
      description = "Image of the container that holds the namespaces of a pod. With null, the runtime uses its own default.";
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
      {
        warnings = lib.optional (lib.versionOlder newest release && !hivesPauseImage) ''
          nixbench.kubernetes.version is ${cfg.version}, and these modules support releases up to ${newest}. Use modules of a newer nixbench, or a package of ${newest}. The container runtime uses its own pause image; to choose one, and to hide this warning, set nixbench.kubernetes.containerRuntime.pauseImage.'';
      }
      (lib.mkIf (runtime.name == "containerd") {
        virtualisation.containerd.enable = true;
        virtualisation.containerd.settings.plugins."io.containerd.grpc.v1.cri" = {
          containerd.runtimes.runc = {
            runtime_type = mkDefault "io.containerd.runc.v2";
            # The runtime must use the same cgroup manager as the kubelet, because two managers of one cgroup tree conflict.
            options.SystemdCgroup = mkDefault true;
          };
          # The folder of CNI plugins must be writable, because pod networks that run as pods install programs in it.
          cni.bin_dir = mkDefault "/opt/cni/bin";
        }
        // lib.optionalAttrs (runtime.pauseImage != null) { sandbox_image = mkDefault runtime.pauseImage; };
      })
      (lib.mkIf (runtime.name == "cri-o") {
        virtualisation.cri-o.enable = true;
        virtualisation.cri-o.settings.crio = {
          # CRI-O also searches this folder for CNI plugins, in addition to the folders that NixOS' module for CRI-O sets.
          network.plugin_dirs = [ "/opt/cni/bin" ];
        }
        // lib.optionalAttrs (runtime.pauseImage != null) {
          image.pause_image = mkDefault runtime.pauseImage;
        };
        # NixOS installs CRI-O's default network in /etc/cni/net.d. Without this setting, pods that start before the pod network
        # is installed would get addresses in the default network, which other nodes cannot reach.
        environment.etc = {
          "cni/net.d/10-crio-bridge.conflist".enable = false;
          "cni/net.d/99-loopback.conflist".enable = false;
        };
      })
      {
        # /opt/cni/bin contains links to the standard CNI plugins, and the CNI plugins that pods install there.
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
