# The option nixbench.beforeSwitch: commands that nixbench runs on the node before it switches the node to another system. They
# are for a change that must be complete before the first service of the new system starts, such as the upgrade of a control
# plane. NixOS' pre-switch checks cannot do this, because they must not change anything.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.nixbench;
in
{
  # interface
  options.nixbench.beforeSwitch = lib.mkOption {
    type = lib.types.lines;
    default = "";
    example = ''
      case $1 in switch) /run/current-system/sw/bin/touch /var/lib/about-to-switch ;; esac
    '';
    description = ''
      Shell commands that nixbench runs as root on the node before `switch-to-configuration`, after the pre-switch
      checks of the new system. The first argument is the goal, `switch` or `test`. If they fail, the switch does
      not begin, so they must undo their own changes.
    '';
  };

  # implementation
  # The file is always declared, because the commands may depend on which files are declared.
  config.environment.etc."nixbench/before-switch" = {
    enable = cfg.beforeSwitch != "";
    source = pkgs.writeShellScript "nixbench-before-switch" cfg.beforeSwitch;
  };
}
