# slurmd, which registers the node with the controller and fetches the configuration from the controller. Jobs continue while
# slurmd restarts, because NixOS sets KillMode=process.
{
  config,
  lib,
  name,
  pkgs,
  runtime,
  ...
}:
let
  cfg = config.nixbench.slurm;
  inherit (cfg.controller) address;
  slurmd = "${lib.getBin cfg.package}/bin/slurmd";

  # The facts (what nixbench tells modules about the cluster), from which this module finds the role of its nodes: nodes of a role
  # share a system, whose `name` is the name of the role.
  facts = if runtime == null then { } else runtime;
  roleName = if facts.roles or { } ? ${name} then name else (facts.nodes.${name} or { }).role or null;
  firstNode = lib.findFirst (_: true) name (facts.roles.${toString roleName} or [ ]);
  machine = (facts.nodes or { }).${firstNode} or { };
  features = lib.unique (cfg.features ++ lib.optional (roleName != null) roleName);

  mebibytes = import ./mebibytes.nix;
  isHollow = cfg.hollow > 0;
  hollow = import ./hollow.nix {
    inherit lib pkgs slurmd;
    count = cfg.hollow;
  };
  isStatic = cfg.membership == "static";

  # How the node registers: slurmd's --conf has the syntax of a NodeName line in slurm.conf.
  settings = cfg.node // lib.optionalAttrs (features != [ ]) {
    Feature = lib.concatStringsSep "," features;
  };
  words = lib.mapAttrsToList (n: v: "${n}=${if builtins.isBool v then (if v then "YES" else "NO") else toString v}") settings;

  # Commands that wait until the controller has this node in its list. A new node may start before the controller has the new
  # list. slurmd would then end, and the switch of the node would fail. With -G, slurmd only fetches the list, and fails if the
  # list does not contain the node.
  awaitList = ''
    until timeout 5 ${slurmd} -G --conf-server ${address} > /dev/null 2>&1; do
      if [ "$(date +%s)" -gt "$end" ]; then
        echo "slurm.conf of the controller ${toString cfg.controller.name} does not have this node; systemd starts slurmd again" >&2
        exit 1
      fi
      sleep 0.5
    done
  '';

  # A script that waits for the controller and then starts slurmd, because slurmd itself would try again only after ten seconds.
  # Each attempt has a time limit, because a connection whose first packet a firewall drops would take a minute.
  start = pkgs.writeShellScript "nixbench-slurmd" ''
    PATH=${lib.makeBinPath [ pkgs.coreutils ]}:$PATH
    end=$(($(date +%s) + 60))
    until timeout 1 ${pkgs.runtimeShell} -c 'exec 3<> /dev/tcp/${address}/6817' 2> /dev/null; do
      if [ "$(date +%s)" -gt "$end" ]; then
        echo "the controller ${toString cfg.controller.name} does not answer at ${address}, port 6817; systemd starts slurmd again" >&2
        exit 1
      fi
      sleep 0.2
    done
    ${lib.optionalString isStatic awaitList}
    ${if isHollow then "exec ${hollow.start}" else "exec ${slurmd} -D"} --conf-server ${address} ${
      lib.optionalString (!isStatic) "-Z"
    } ${
      lib.optionalString (!isStatic && words != [ ]) "--conf ${lib.escapeShellArg (lib.concatStringsSep " " words)}"
    }
  '';
in
{
  config = lib.mkIf (cfg.configured && cfg.role == "compute") {
    services.slurm.client.enable = true;

    assertions = [
      {
        assertion = !isStatic || roleName == null || cfg.staticRoles ? ${roleName};
        message = "nixbench.slurm.membership is static, and nixbench.slurm.staticRoles has no role ${toString roleName}; add it on all nodes.";
      }
      {
        assertion = !isHollow || !isStatic;
        message = "roles.${toString roleName}.hollow is ${toString cfg.hollow}, and nixbench.slurm.membership is static; hollow nodes register with the controller, so set membership to dynamic.";
      }
    ];

    # In a container, slurmd would detect the processors and the memory of the host. So set the processors and the memory of the
    # role.
    nixbench.slurm.node = lib.mkIf (config.boot.isContainer && machine ? vcpus && machine ? memory) {
      CPUs = lib.mkDefault machine.vcpus;
      RealMemory = lib.mkDefault (mebibytes machine.memory);
    };

    networking.firewall.allowedTCPPortRanges = lib.mkIf (isHollow && cfg.openFirewall) [ hollow.ports ];

    systemd.services.slurmd = {
      # NixOS orders slurmd after munge.service, but the name of the systemd unit is munged.service.
      after = [ "munged.service" ];
      requires = [ "munged.service" ];
      startLimitIntervalSec = 0;
      serviceConfig = {
        # With this type, a switch does not wait until slurmd has registered with the controller, which may be switched at the
        # same time.
        Type = lib.mkForce "simple";
        ExecStart = lib.mkForce start;
        Restart = "always";
        RestartSec = 1;
        SyslogIdentifier = "slurmd";
      };
    };
  };
}
