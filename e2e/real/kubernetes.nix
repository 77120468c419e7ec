# Settings for Kubernetes in containers of the lab, as in demo/hive.nix.
{
  networking.nameservers = [ "192.168.222.1" ];
  networking.firewall.enable = false;
  virtualisation.containerd.settings.plugins."io.containerd.grpc.v1.cri".restrict_oom_score_adj =
    true;
  # No registry is in the lab: the images are imported when containerd starts.
  systemd.services.containerd.serviceConfig = {
    ExecStartPost = "/usr/sbin/lab-images";
    TimeoutStartSec = 180;
  };
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
}
