# The reference cluster (../hive.nix) for the demo on one computer: its machines are
# containers on the lab's hypervisor instead of virtual machines, made from the lab's image,
# and its nixpkgs is the mini NixOS. This file has only the settings that this requires.
let
  # ./up writes the files in .state.
  lab = builtins.fromJSON (builtins.readFile ./.state/lab.json);

  reference = import ../hive.nix {
    nixpkgs = import ./.state/nixpkgs { system = "x86_64-linux"; };
  };

  machine = {
    image = builtins.readFile ./.state/image;
    init = "/usr/sbin/lab-init-kubernetes";
    memory = "3G";
    # Devices and capabilities that a container needs as a Kubernetes node (docs/provisioning.md).
    xml = ''
      <domain>
        <features><capabilities policy='allow'/></features>
        <devices>
          <hostdev mode='capabilities' type='misc'><source><char>/dev/kmsg</char></source></hostdev>
        </devices>
      </domain>
    '';
  };
in
reference
// {
  cluster = reference.cluster // {
    hypervisors.default = {
      uri = lab.uris.lxc;
      inherit (lab) poolPath;
    };
  };

  roles = builtins.mapAttrs (_: role: role // machine) reference.roles;

  defaults = {
    imports = [ reference.defaults ];
    boot.isContainer = true;
    # The lab's network has no other name server.
    networking.nameservers = [ "192.168.222.1" ];
    # Settings for Kubernetes in containers, which share the kernel and the disk of the host.
    virtualisation.containerd.settings.plugins."io.containerd.grpc.v1.cri".restrict_oom_score_adj =
      true;
    nixbench.kubernetes = {
      settings.kubelet = {
        failSwapOn = false;
        failCgroupV1 = false;
        imageGCHighThresholdPercent = 100;
        evictionHard = {
          "memory.available" = "100Mi";
          "nodefs.available" = "1%";
          "nodefs.inodesFree" = "1%";
          "imagefs.available" = "1%";
        };
      };
      settings.proxy.conntrack = {
        maxPerCore = 0;
        min = 0;
      };
      # This image is part of the nodes' image.
      probe = {
        image = "localhost/probe:1";
        serve = [
          "/probe"
          "serve"
        ];
        get = [
          "/probe"
          "get"
        ];
      };
    };
  };
}
