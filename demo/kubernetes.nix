# What the reference cluster (../hive.nix) needs to run in containers of the lab.
{
  hive = ../hive.nix;
  cluster = { };

  machine = {
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

  module = {
    # Kubelets pass it on to pods. The lab's network has no other name server.
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
