# The handover of a node from one scheduler to another one, in place.
#
# A switch to a system with another scheduler stops the systemd units of the previous scheduler, but not what these units have
# started: containers, jobs, mounts, interfaces, firewall rules. Only the previous system can end all of this, because the next
# system does not have its settings. So each scheduler defines a cleanup program. A system records the cleanup program on the node
# before it starts its scheduler. The next system runs the recorded program before it starts its own scheduler.
#
# The record is a folder. For each scheduler that may have something running, it has a link to the cleanup program. The folder is
# among Nix' garbage collection roots, so that the garbage collector keeps the programs, and one rename changes record and root
# together. A link stays until its program has succeeded: the next start of the systemd unit continues an interrupted handover.
#
# In a system without a scheduler, this module only cleans up after the previous scheduler.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.handover;
  schedulers = lib.filterAttrs (_: s: s.units != [ ]) cfg.schedulers;
  names = lib.attrNames schedulers;
  record = "/nix/var/nix/gcroots/nixbench-handover";

  # The name of the handover unit (a systemd unit) contains the names of the schedulers. So a switch to another scheduler stops
  # this unit, and with it all units of the scheduler, because they require it. The switch then starts a unit with another name.
  # If only the cleanup program changes, nothing is restarted.
  unit = lib.concatStringsSep "-" ([ "nixbench-handover" ] ++ names);

  functions = pkgs.writeText "nixbench-cleanup-functions.sh" (builtins.readFile ./functions.sh);
  path = [
    pkgs.coreutils
    pkgs.findutils
    pkgs.gnugrep
    pkgs.iproute2
    pkgs.iptables
    pkgs.systemd
    pkgs.util-linux
  ];
  cleanup =
    name: scheduler:
    pkgs.writeShellScript "nixbench-cleanup-${name}" ''
      set -u
      export PATH=${lib.makeBinPath (path ++ scheduler.path)}
      source ${functions}
      ${scheduler.cleanup}
      exit "$failed"
    '';

  run = pkgs.writeShellScript "nixbench-handover" (
    ''
      set -u
      unit=${unit}.service
      record=${record}
      time_limit=${toString cfg.timeout}
    ''
    + builtins.readFile ./handover.sh
  );
  command = lib.concatStringsSep " " (
    [ "${run}" ] ++ lib.mapAttrsToList (name: scheduler: "${name}=${cleanup name scheduler}") schedulers
  );
in
{
  # interface
  options.nixbench.handover = {
    schedulers = mkOption {
      type = types.attrsOf (
        types.submodule {
          options = {
            units = mkOption {
              type = types.listOf types.str;
              default = [ ];
              example = [ "kubelet" ];
              description = ''
                Services that start only after the previous scheduler was cleaned up, without `.service`: all services
                of the scheduler that start processes which outlive them, or that change the network.
              '';
            };
            cleanup = mkOption {
              type = types.lines;
              default = "";
              example = ''
                delete_interface cilium_host
              '';
              description = ''
                Shell commands that end what these services leave on the node after they have been stopped:
                processes, control groups, mounts, interfaces and firewall rules. Data on disks must stay. The
                commands may run several times, and must succeed if nothing is left.
                `modules/handover/functions.sh` has functions for them.
              '';
            };
            path = mkOption {
              type = types.listOf types.package;
              default = [ ];
              example = lib.literalExpression "[ pkgs.nftables ]";
              description = "Packages of the commands in `cleanup`, in addition to coreutils, iproute2, iptables, systemd and util-linux.";
            };
          };
        }
      );
      default = { };
      example.kubernetes.cleanup = ''
        delete_interface cilium_host
      '';
      description = ''
        The schedulers of the node, and how the next system cleans up after them. The modules of Kubernetes, SLURM
        and Flux set this option.
      '';
    };
    timeout = mkOption {
      type = types.ints.positive;
      default = 60;
      example = 120;
      description = "Seconds after which the cleanup of one previous scheduler has failed, and the scheduler of this system does not start.";
    };
  };

  # implementation
  config.systemd.services = {
    ${unit} = {
      description =
        if names == [ ] then
          "Clean up after the previous scheduler"
        else
          "Clean up after the previous scheduler, before ${lib.concatStringsSep " and " names}";
      wantedBy = [ "multi-user.target" ];
      after = [ "local-fs.target" ];
      path = [ pkgs.coreutils ];
      unitConfig = lib.optionalAttrs (names == [ ]) { ConditionDirectoryNotEmpty = record; };
      # If only the cleanup program of this system changes, a reload of this unit records the new program. The services of the
      # scheduler do not restart.
      reloadIfChanged = true;
      serviceConfig = {
        Type = "oneshot";
        # In a system without a scheduler, this unit runs at each switch. It does nothing if no scheduler is recorded.
        RemainAfterExit = names != [ ];
        ExecStart = command;
        ExecReload = command;
        TimeoutStartSec = "infinity"; # each cleanup program has a time limit of its own
        SyslogIdentifier = "nixbench-handover";
      };
    };
  }
  // lib.genAttrs (lib.unique (lib.concatMap (s: s.units) (lib.attrValues schedulers))) (_: {
    requires = [ "${unit}.service" ];
    after = [ "${unit}.service" ];
  });
}
