# Settings for Kubernetes in containers of the lab that boot a real NixOS.
{
  imports = [ (import ../lab/kubernetes-node.nix).module ];
  networking.nameservers = [ "192.168.222.1" ]; # kubelets pass it on to pods
  networking.firewall.enable = false;
  # No registry is in the lab: the images are imported when containerd starts.
  systemd.services.containerd.serviceConfig = {
    ExecStartPost = "/usr/sbin/lab-images";
    TimeoutStartSec = 180;
  };
}
