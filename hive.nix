# The reference cluster: one control plane and some workers, booted from nothing.
#
#   nixbench eval                                  # which nodes there are
#   nixbench build                                 # their systems: one per role
#   nixbench build --set roles.worker.count=50     # still one per role
{
  meta = {
    name = "reference";
    description = "one control plane, three workers";
    nixpkgs = import <nixpkgs> { system = "x86_64-linux"; };
  };

  # The libvirt network that the machines are on. It is made if it is absent.
  cluster.network = {
    name = "scheduler_benchmark_net";
    cidr = "192.168.222.0/24";
  };

  # Every node has these settings, as in Colmena.
  defaults = {
    services.openssh.enable = true;
    boot.loader.grub.device = "/dev/vda";
    fileSystems."/" = {
      device = "/dev/vda1";
      fsType = "ext4";
    };
    system.stateVersion = "25.05";
  };

  # A role is a template with a count. Its nodes share one closure and learn at run
  # time who they are, so that scaling costs neither an evaluation nor a build.
  roles.control-plane = {
    vcpus = 2;
    memory = "2G";
    tags = [ "control" ];
    modules = [ { networking.firewall.allowedTCPPorts = [ 6443 ]; } ];
  };

  roles.worker = {
    count = 3;
    vcpus = 2;
    memory = "4G";
    tags = [ "compute" ];
    modules = [ { networking.firewall.allowedTCPPorts = [ 10250 ]; } ];
  };
}
