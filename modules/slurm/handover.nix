# The cleanup that the next NixOS system runs when a node changes from SLURM to another scheduler. It ends the jobs, which outlive
# slurmd. The state of slurmctld, with its queue and its nodes, stays.
{
  config,
  lib,
  ...
}:
let
  cfg = config.nixbench.slurm;
  daemons = {
    accounting = "slurmdbd";
    controller = "slurmctld";
    compute = "slurmd";
    login = "sackd";
  };
in
{
  imports = [ ../handover ];

  # implementation
  config.nixbench.handover.schedulers.slurm = lib.mkIf cfg.configured {
    units = [ daemons.${cfg.role} ];
    # Without cgroups, the processes of jobs are in the control group of slurmd. With cgroup v2, slurmd starts a scope for the
    # processes of jobs. With cgroup v1, it makes control groups for them outside of systemd's.
    cleanup = lib.mkBefore ''
      groups=(system.slice/slurmd.service 'system.slice/*slurmstepd.scope' slurm 'slurm_*')
      end_processes 5 cgroup_processes "''${groups[@]}"
      remove_unit_cgroup slurmd.service
      remove_cgroups "''${groups[@]:1}"
    '';
  };
}
