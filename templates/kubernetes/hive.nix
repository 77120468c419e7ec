# A Kubernetes cluster of machines that nixbench boots, from an empty hypervisor:
#
#   nixbench doctor                              # is all there that it takes?
#   nixbench plan                                # what would happen
#   nixbench apply                               # make it so; again, and nothing happens
#   nixbench check                               # prove that the cluster works
#   nixbench kubeconfig                          # and use it
#   nixbench apply --set roles.worker.count=5    # three more workers
#   nixbench destroy                             # gone
{
  nixpkgs ? <nixpkgs>, # 25.05 or later
  modules ? ./modules, # nixbench's NixOS modules
}:
{
  meta.name = "reference"; # machines are called reference-worker-1, …
  meta.nixpkgs = nixpkgs;

  # Where the machines run, and the network that they are on. Both are the hypervisor's
  # of this computer; the network is made if it is absent.
  cluster.hypervisors.default.uri = "qemu:///system"; # or qemu+ssh://root@host/system
  cluster.network.name = "scheduler_benchmark_net";
  cluster.network.cidr = "192.168.222.0/24";
  cluster.endpoint.role = "control-plane"; # whose first node every node finds the API at

  # Settings of every node, as in Colmena: any NixOS option.
  defaults = {
    imports = [ (modules + "/guest.nix") ]; # login, console, disk: what a machine needs
    nixbench.kubernetes.podCidr = "10.244.0.0/16";
    system.stateVersion = "25.05";
  };

  # A role is a template with a count. Its nodes share one closure and learn at run
  # time who they are, so that fifty workers cost no more to build than one.
  roles.control-plane = {
    count = 1; # an odd number
    vcpus = 2;
    memory = "4G";
    disk = "20G";
    modules = [ (modules + "/kubernetes/control-plane.nix") ];
  };
  roles.worker = {
    count = 2;
    vcpus = 2;
    memory = "4G";
    disk = "20G";
    tags = [ "compute" ]; # for --on @compute
    modules = [ (modules + "/kubernetes/worker.nix") ];
  };
}
