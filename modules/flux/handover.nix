# What the next system does if the node goes over from Flux to another scheduler. systemd ends all jobs with the broker, so
# something is left only if it could not. The queue in /var/lib/flux stays.
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
