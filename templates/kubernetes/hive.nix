# A Kubernetes cluster on virtual machines that nixbench creates on a hypervisor:
#
#   nixbench doctor                              # check the prerequisites of this machine
#   nixbench plan                                # show what apply would change
#   nixbench apply                               # create or update the cluster
#   nixbench check                               # verify that the cluster works
#   nixbench kubeconfig                          # write a kubeconfig for kubectl
#   nixbench apply --set roles.worker.count=5    # add three workers
#   nixbench destroy                             # remove the cluster and its machines
{
  nixpkgs ? <nixpkgs>, # 25.05 or later
  modules ? ./modules, # nixbench's NixOS modules
}:
{
  meta.name = "cluster"; # the names of the machines begin with it
  meta.nixpkgs = nixpkgs;

  # The machines run on the hypervisor of this computer, on a network that nixbench
  # creates if it does not exist. Each cluster needs a name, a network and a range of its own.
  cluster.hypervisors.default.uri = "qemu:///system"; # or qemu+ssh://root@host/system
  cluster.network.name = "cluster";
  cluster.network.cidr = "192.168.222.0/24";
  cluster.endpoint.role = "control-plane"; # the API has the address of its first node

  # NixOS options of every node, as in Colmena.
  defaults = {
    imports = [ (modules + "/guest.nix") ]; # login, network, console, disk of the machines
    nixbench.kubernetes.podCidr = "10.244.0.0/16";
    system.stateVersion = "25.05";
  };

  # A role is a template of nodes with a count. Its nodes share one closure and read their
  # name and address at run time, so fifty workers need only one build.
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
