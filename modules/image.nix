# The images of machines whose role does not set the option `image`. For virtual machines, nixbench builds NixOS' images
# `system.build.images.qemu` and `qemu-efi`, and for containers `lxc`. NixOS' `lxc` image is a tarball, but libvirt needs a file
# system, so this module replaces that image.
{
  config,
  lib,
  ...
}:
let
  inherit (lib) mkOption types;

  container =
    {
      config,
      lib,
      modulesPath,
      pkgs,
      ...
    }:
    let
      inherit (config.system.build) toplevel;

      # Make the file system with make-ext4-fs, because it needs neither root nor a virtual machine.
      tree = pkgs.callPackage (modulesPath + "/../lib/make-ext4-fs.nix") {
        storePaths = [ toplevel ];
        volumeLabel = "nixos";
        # /sbin/init is a link to the init program of the system profile, so that the next boot uses the system that a switch has
        # activated.
        populateImageCommands = ''
          mkdir -p ./files/sbin ./files/nix/var/nix/profiles
          ln -s /nix/var/nix/profiles/system/init ./files/sbin/init
          ln -s system-1-link ./files/nix/var/nix/profiles/system
          ln -s ${toplevel} ./files/nix/var/nix/profiles/system-1-link
        '';
      };
    in
    {
      # interface: the imported module of NixOS declares the options that every image has, such as image.fileName.
      imports = [ (modulesPath + "/image/file-options.nix") ];

      # implementation
      boot.isContainer = true;
      image.extension = "raw";
      image.filePath = "disk.raw";
      system.build.image =
        pkgs.runCommand "nixbench-container-image"
          {
            nativeBuildInputs = [ pkgs.e2fsprogs ];
            passthru.filePath = "disk.raw";
          }
          ''
            mkdir "$out"
            cp ${tree} "$out/disk.raw"
            chmod u+w "$out/disk.raw"
            truncate -s ${config.nixbench.image.size} "$out/disk.raw"
            resize2fs "$out/disk.raw"
          '';
    };
in
{
  # interface
  options.nixbench.image.size = mkOption {
    type = types.strMatching "[1-9][0-9]*[MGT]";
    default = "8G";
    example = "20G";
    description = ''
      Size of the file system in a container's image, and therefore of the container's root.
      Unused blocks need no space. Virtual machines have `roles.ROLE.disk` instead.
    '';
  };

  # implementation
  config = {
    image.modules.lxc = lib.mkForce container;

    # The image contains store paths, but no Nix database. At the first boot, the database is
    # loaded from a list of these paths.
    boot.postBootCommands = lib.mkIf config.boot.isContainer ''
      if [ -f /nix-path-registration ]; then
        ${config.nix.package}/bin/nix-store --load-db < /nix-path-registration &&
          rm /nix-path-registration
      fi
    '';
  };
}
