# The reference cluster (../hive.nix) as this computer alone can run it: in containers of
# the lab's hypervisor instead of virtual machines, made from the lab's image, with the
# mini NixOS for nixpkgs. What is said here is due to that, and to nothing else.
let
  # Written by ./up.
  lab = builtins.fromJSON (builtins.readFile ./.state/lab.json);

  reference = import ../hive.nix {
    nixpkgs = import ./.state/nixpkgs { system = "x86_64-linux"; };
  };

  machine = {
    image = builtins.readFile ./.state/image;
    init = "/usr/sbin/lab-init-kubernetes";
    memory = "3G";
    # What a container needs to be a Kubernetes node (docs/provisioning.md).
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
    # There is no name server beyond the lab's.
    networking.nameservers = [ "192.168.222.1" ];
    # Kubernetes where the kernel and the disk are the host's.
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
      # An image that is on the nodes already.
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
