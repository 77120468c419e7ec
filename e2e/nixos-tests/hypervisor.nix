# nixbench creates a virtual machine inside of a virtual machine with libvirt, from an image that was built before, deploys
# to it, and removes it.
{ pkgs, common }:
let
  inherit (pkgs) lib;
  inherit (common) modules operator;

  # The system of the role in a version, as nixbench would build it.
  guest =
    version:
    import (pkgs.path + "/nixos/lib/eval-config.nix") {
      system = null;
      specialArgs = {
        name = "guest";
        runtime = null;
      };
      modules = [
        "${modules}/guest.nix"
        "${modules}/deployment.nix"
        "${modules}/engine.nix"
        "${modules}/keys.nix"
        "${modules}/shared-role.nix"
        {
          nixpkgs.pkgs = pkgs;
          nix.settings.substituters = lib.mkForce [ ];
          system.stateVersion = "25.05";
          environment.etc.marker.text = version;
        }
      ];
    };
  image = (guest "image").config.system.build.images.qemu;

  hive = version: {
    systems.guest = (guest version).config.system.build.toplevel;
    hive = {
      cluster.network = {
        name = "nixbench";
        cidr = "192.168.222.0/24";
      };
      roles.guest = {
        count = 1;
        vcpus = 1;
        memory = "1G";
        disk = "8G";
        image = "${image}/${image.passthru.filePath}";
        modules = [ "${modules}/guest.nix" ];
      };
    };
  };
in
{
  name = "nixbench-hypervisor";

  nodes.operator = {
    imports = [
      (operator {
        first = hive "first";
        second = hive "second";
      })
    ];
    # The firewall of NixOS does not know the bridge of libvirt's network, and would drop requests for addresses.
    networking.firewall.enable = false;
    virtualisation = {
      libvirtd.enable = true;
      memorySize = lib.mkForce 6144;
      diskSize = 16384;
      cores = lib.mkForce 4;
    };
  };

  testScript = ''
    ${common.script}
    operator.wait_for_unit("libvirtd.service")


    def marker() -> str:
        return nixbench("exec -- cat /etc/marker")


    with subtest("a machine from an image"):
        use_hive("first")
        # Without nested virtualization the machine is emulated, and slow.
        nixbench("apply --yes --timeout boot=20m")
        assert "first" in marker()

    with subtest("a change, and a reboot with the boot loader of the machine"):
        use_hive("second")
        nixbench("apply --yes")
        nixbench("reboot --yes --timeout 20m")
        assert "second" in marker()

    with subtest("nothing is left"):
        nixbench("destroy --yes")
        left = operator.succeed("virsh list --all --name && virsh net-list --all --name")
        assert "guest" not in left and "nixbench" not in left, left
  '';
}
