# What the template `schedulers` with SLURM needs to run in containers of the lab.
{
  hive = ../templates/schedulers/hive.nix;
  cluster.scheduler = "slurm";

  machine = {
    init = "/usr/sbin/lab-init";
    memory = "1G";
  };

  module = { };
}
