# The template `schedulers`, with machines that are containers of the lab.
{
  nixpkgs,
  uri,
  poolPath,
  image,
}:
let
  template = import ../../templates/schedulers/hive.nix {
    nixpkgs = import nixpkgs { system = "x86_64-linux"; };
    modules = ../../modules;
  };

  machine = {
    inherit image;
    init = "/usr/sbin/lab-init-kubernetes";
    memory = "3G";
    xml = ''
      <domain>
        <features><capabilities policy='allow'/></features>
        <devices>
          <hostdev mode='capabilities' type='misc'><source><char>/dev/kmsg</char></source></hostdev>
        </devices>
      </domain>
    '';
  };

  # Settings for Kubernetes in containers, which share the kernel and the disk of the host.
  kubernetesInContainers = {
    networking.nameservers = [ "192.168.223.1" ]; # kubelets pass it on to pods
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
in
template
// {
  cluster = template.cluster // {
    hypervisors.default = { inherit uri poolPath; };
    schedulers = template.cluster.schedulers // {
      kubernetes.modules = template.cluster.schedulers.kubernetes.modules ++ [ kubernetesInContainers ];
    };
  };
  roles = builtins.mapAttrs (_: role: role // machine) template.roles;
  defaults = {
    imports = [ template.defaults ];
    boot.isContainer = true;
  };
}
