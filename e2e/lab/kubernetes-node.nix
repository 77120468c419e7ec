# What a container of the lab needs as a Kubernetes node. A hive sets networking.nameservers itself, to the address of the
# host in its network: kubelets pass it on to pods, and the lab has no other name server.
{
  # Settings of a role (docs/provisioning.md): the image is one with Kubernetes, and a node has devices and capabilities
  # that other containers do not have.
  machine = {
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
  module = {
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
