# What the tests have in common.
{
  pkgs,
  nixbench, # the package
  nixpkgs, # source of nixpkgs, as a string
}:
let
  inherit (pkgs) lib;
in
rec {
  # Modules by their paths in the store, since the hive in the virtual machine imports them, too.
  modules = "${../../modules}";
  tests = "${./.}";

  # A machine without a network that uses Nix.
  offline = {
    nix.settings.substituters = lib.mkForce [ ];
    nix.settings.hashed-mirrors = null;
    nix.settings.connect-timeout = 1;
    virtualisation.cores = 2;
  };

  # The machine that runs nixbench. Each of the hives is a folder in /etc/hives. A hive's systems are in the closure of
  # this machine, so they exist in its store.
  operator = hives: {
    imports = [ offline ];
    virtualisation.memorySize = 3072;
    environment.systemPackages = [ nixbench ];
    environment.etc = lib.concatMapAttrs (
      name:
      {
        systems,
        nodes ? { },
        hive ? { },
      }:
      {
        "hives/${name}/hive.nix".source = ./hive.nix;
        "hives/${name}/test.json".text = builtins.toJSON {
          inherit nixpkgs systems nodes hive;
          inherit (pkgs.stdenv.hostPlatform) system;
        };
      }
    ) hives;
  };

  # A machine that nixbench deploys to. The test driver starts its kernel without a boot loader. So the boot loader only
  # records what it would boot by default.
  target = {
    imports = [ offline ];
    services.openssh.enable = true;
    system.switch.enable = true;
    boot.loader.external = {
      enable = true;
      installHook = pkgs.writeShellScript "record-boot-default" ''
        ${pkgs.coreutils}/bin/ln -sfn "$1" /var/lib/boot-default
      '';
    };
  };

  # Adds `system.build.versions`: systems like that of the machine, each with a further module.
  versions =
    modules:
    { extendModules, ... }:
    {
      system.build.versions = lib.mapAttrs (
        _: module: (extendModules { modules = [ module ]; }).config.system.build.toplevel
      ) modules;
    };

  # Functions for the test scripts. `operator` is the machine that runs nixbench.
  script = ''
    def use_hive(name: str) -> None:
        operator.succeed(f"mkdir -p /root/hive && install -m 644 /etc/hives/{name}/* /root/hive/")


    def nixbench(arguments: str, code: int = 0) -> str:
        status, output = operator.execute(f"cd /root/hive && nixbench {arguments} 2>&1", timeout=1800)
        print(output)
        assert status == code, f"nixbench {arguments}: exit code {status}, expected {code}"
        return output


    def authorize(*machines: QemuMachine) -> None:
        """Let root of the operator log in to the machines."""
        operator.wait_for_unit("multi-user.target")
        operator.succeed("mkdir -p -m 700 /root/.ssh && ssh-keygen -q -t ed25519 -N \"\" -f /root/.ssh/id_ed25519")
        key = operator.succeed("cat /root/.ssh/id_ed25519.pub").strip()
        for machine in machines:
            machine.wait_for_unit("multi-user.target")
            machine.wait_for_open_port(22)
            machine.succeed(f"mkdir -p -m 700 /root/.ssh && echo '{key}' >> /root/.ssh/authorized_keys")


    def current_system(machine: QemuMachine) -> str:
        return machine.succeed("readlink -f /run/current-system").strip()


    def boot_default(machine: QemuMachine) -> str:
        return machine.succeed("readlink -f /var/lib/boot-default").strip()


    start_all()
  '';
}
