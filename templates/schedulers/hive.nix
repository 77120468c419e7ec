# A cluster that runs Kubernetes or SLURM, on virtual machines that nixbench creates on a hypervisor:
#
#   nixbench doctor                                   # check the prerequisites of this machine
#   nixbench apply                                    # create the cluster, with the scheduler that is set below
#   nixbench apply --set scheduler=slurm              # the same machines with SLURM
#   nixbench check --set scheduler=slurm --deep       # verify that SLURM works
#   nixbench destroy                                  # remove the cluster and its machines
{
  nixpkgs ? <nixpkgs>, # 25.05 or later
  modules ? ./modules, # nixbench's NixOS modules
}:
{
  meta.name = "schedulers"; # the names of the machines begin with it
  meta.nixpkgs = nixpkgs;

  # The machines run on the hypervisor of this computer, on a network that nixbench
  # creates if it does not exist. Each cluster needs a name, a network and a range of its own.
  cluster.hypervisors.default.uri = "qemu:///system"; # or qemu+ssh://root@host/system
  cluster.network.name = "schedulers";
  cluster.network.cidr = "192.168.223.0/24";

  # The scheduler of the cluster. `--set scheduler=slurm` changes it for one command, so repeat it for
  # each command, or change this line.
  cluster.scheduler = "kubernetes";

  # Settings of all nodes with each scheduler.
  cluster.endpoint.role = "head"; # the API of Kubernetes has the address of its first node
  cluster.schedulers.kubernetes.modules = [
    (modules + "/kubernetes")
    { nixbench.kubernetes.podCidr = "10.244.0.0/16"; }
  ];
  cluster.schedulers.slurm.modules = [
    (modules + "/slurm")
    { nixbench.slurm.controllerRole = "head"; }
  ];

  # NixOS options of every node, as in Colmena.
  defaults = {
    imports = [ (modules + "/guest.nix") ]; # login, network, console, disk of the machines
    system.stateVersion = "25.05";
  };

  # A role is a template of nodes with a count. With each scheduler its nodes have other modules.
  roles.head = {
    count = 1; # SLURM has one controller
    vcpus = 2;
    memory = "4G";
    disk = "20G";
    schedulers.kubernetes.modules = [ (modules + "/kubernetes/control-plane.nix") ];
    schedulers.slurm.modules = [ (modules + "/slurm/controller.nix") ];
  };
  roles.node = {
    count = 2;
    vcpus = 2;
    memory = "4G";
    disk = "20G";
    tags = [ "compute" ]; # for --on @compute
    modules = [ ]; # with any scheduler
    schedulers.kubernetes.modules = [ (modules + "/kubernetes/worker.nix") ];
    schedulers.slurm.modules = [ (modules + "/slurm/compute.nix") ];
  };
}
