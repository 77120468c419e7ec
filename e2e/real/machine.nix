# NixOS settings for machines whose packages are links into Debian's /usr.
{
  config,
  lib,
  pkgs,
  ...
}:
{
  boot.isContainer = true;
  # Debian's programs need their dynamic loader. It stays the link that Debian has.
  environment.ldso = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
  # nixpkgs' systemd reads units only from /etc and /run. Debian's does with this variable. The
  # program is a link to Debian's, since switch-to-configuration compares it with the running one.
  boot.systemdExecutable = "${pkgs.writeShellScript "systemd" ''
    export SYSTEMD_UNIT_PATH=${
      lib.concatStringsSep ":" [
        "/etc/systemd/system.control"
        "/run/systemd/system.control"
        "/run/systemd/transient"
        "/run/systemd/generator.early"
        "/etc/systemd/system"
        "/run/systemd/system"
        "/run/systemd/generator"
        "/run/systemd/generator.late"
      ]
    }
    exec /usr/lib/systemd/systemd "$@"
  ''}";
  # The only locale that the guest has.
  i18n.defaultLocale = "C.UTF-8";
  # Debian's C library loads the NSS modules itself.
  services.nscd.enable = false;
  system.nssModules = lib.mkForce [ ];
  services.dbus.implementation = "dbus";

  # Debian's guest has no resolved. Without name servers /etc/resolv.conf is the lab's.
  services.resolved.enable = false;
  networking.resolvconf.enable = false;
  environment.etc."resolv.conf" = lib.mkIf (config.networking.nameservers != [ ]) {
    text = lib.concatMapStrings (address: "nameserver ${address}\n") config.networking.nameservers;
  };

  # Their programs are not in the guest.
  security.wrappers.newgidmap.enable = false;
  security.wrappers.newuidmap.enable = false;

  # Units of a newer systemd than Debian's, and of parts that Debian packages separately.
  systemd.suppressedSystemUnits = [
    "systemd-ask-password.socket"
    "systemd-ask-password@.service"
    "systemd-factory-reset-reboot.service"
    "systemd-factory-reset-request.service"
    "systemd-factory-reset.socket"
    "systemd-factory-reset@.service"
    "systemd-journalctl.socket"
    "systemd-journalctl@.service"
    "systemd-mute-console.socket"
    "systemd-mute-console@.service"
    "systemd-networkd-resolve-hook.socket"
    "systemd-networkd-varlink-metrics.socket"
    "systemd-networkd-varlink.socket"
    "systemd-oomd.service"
    "systemd-oomd.socket"
    "systemd-udevd-varlink.socket"
  ];

  # No binary cache can be reached, and asking for it takes seconds.
  nix.settings.substituters = lib.mkForce [ ];

  # Programs that no test needs.
  documentation.enable = false;
  boot.bcache.enable = false;
  # Its value is in the configuration of a kernel, which a container does not have.
  environment.etc."sysctl.d/55-nixos-aslr-entropy.conf".enable = false;
  systemd.coredump.enable = false;
  systemd.shutdownRamfs.enable = false;
  environment.defaultPackages = [ ];
  environment.stub-ld.enable = false;
  fonts.fontconfig.enable = false;
  programs.bash.completion.enable = false;
  programs.command-not-found.enable = false;
  programs.nano.enable = false;
  services.logrotate.enable = false;
  xdg = {
    autostart.enable = false;
    icons.enable = false;
    menus.enable = false;
    mime.enable = false;
    sounds.enable = false;
  };
  system.tools = {
    nixos-build-vms.enable = false;
    nixos-enter.enable = false;
    nixos-generate-config.enable = false;
    nixos-install.enable = false;
    nixos-option.enable = false;
    nixos-version.enable = true;
    nixos-rebuild.enable = true;
  };
}
