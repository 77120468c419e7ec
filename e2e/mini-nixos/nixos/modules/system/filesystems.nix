# The guest mounts what its image says. The table is kept for those who read it:
# /etc/fstab.nixos, never /etc/fstab, whose devices the guest may not have.
{ config, lib, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option required;

  fileSystem =
    { name, config, ... }:
    {
      options = {
        mountPoint =
          option (types.addCheck types.str (s: builtins.match "[ \t\n]*" s == null)) name
            "Where to mount it.";
        device = option (types.nullOr types.nonEmptyStr) null "What to mount.";
        label = option (types.nullOr types.nonEmptyStr) null "Label of what to mount.";
        fsType = option types.nonEmptyStr "auto" "Type of the file system.";
        options = option (types.nonEmptyListOf types.nonEmptyStr) [ "defaults" ] "Mount options.";
        neededForBoot = option types.bool false "Whether stage 1 mounts it.";
        autoResize = option types.bool false "Whether it grows with its device.";
        autoFormat = option types.bool false "Whether it is made when it is missing.";
        noCheck = option types.bool false "Whether fsck leaves it alone.";
        depends = option (types.listOf types.str) [ ] "Mount points that come first.";
      };
      config.device = lib.mkIf (config.label != null) (
        lib.mkDefault "/dev/disk/by-label/${config.label}"
      );
    };
in
{
  options = {
    fileSystems = option (types.attrsOf (types.submodule fileSystem)) { } "File systems to mount.";
    swapDevices = option (types.listOf (
        types.submodule {
          options = {
            device = required types.nonEmptyStr "Path of the device or file.";
            size = option (types.nullOr types.int) null "Size of a swap file in MiB.";
            priority = option (types.nullOr types.int) null "Priority of the device.";
          };
        }
      )) [ ] "Swap.";
  };

  config.environment.etc."fstab.nixos".text =
    lib.concatMapStrings (
      f: "${if f.device == null then "none" else f.device} ${f.mountPoint} ${f.fsType} ${lib.concatStringsSep "," f.options} 0 0\n"
    ) (lib.attrValues config.fileSystems)
    + lib.concatMapStrings (s: "${s.device} none swap defaults 0 0\n") config.swapDevices;
}
