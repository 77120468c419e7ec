# The cleanup that the next NixOS system runs when a node changes from Flux to another scheduler. systemd ends all jobs together
# with the broker, so the cleanup only ends what systemd could not end. The queue of jobs in /var/lib/flux stays.
{
  config,
  lib,
  ...
}:
{
  imports = [ ../handover ];

  # implementation
  config.nixbench.handover.schedulers.flux = lib.mkIf config.nixbench.flux.configured {
    units = [ "flux" ];
    cleanup = lib.mkBefore ''
      end_processes 5 cgroup_processes system.slice/flux.service
      remove_unit_cgroup flux.service
    '';
  };
}
