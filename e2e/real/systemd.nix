# Debian's systemd where NixOS modules look for systemd: its units in example/, its programs in
# lib/systemd. The units are copied, because the builder reads them.
{
  build,
  final,
  guest,
  lib,
}:
let
  # What NixOS modules ask the package. A feature that Debian's systemd does not have, or that no
  # test uses, is off, so that modules do not ask for its units.
  on = [
    "Acl" "Analyze" "Compression" "Hostnamed" "Iptables" "Kmod" "Localed" "Logind" "Networkd" "Nss" "Pam"
    "Sysusers" "Timedated" "Timesyncd" "Resolved"
  ];
  off = [
    "Apparmor" "Audit" "Bootloader" "Coredump" "Cryptsetup" "Efi" "Fido2" "Firstboot" "Homed" "Hwdb" "Importd"
    "LibBPF" "Machined" "Nspawn" "Nsresourced" "Oomd" "PasswordQuality" "Polkit" "Portabled" "Remote" "Repart"
    "ShellCompletions" "StorageTm" "Sysupdate" "Tpm2Tss" "Tpm2Units" "Ukify" "UserDb" "Utmp" "VConsole" "Vmspawn"
  ];
  features =
    value: names: lib.listToAttrs (map (name: lib.nameValuePair "with${name}" value) names);
in
build "systemd"
  (
    {
      interfaceVersion = 2;
      mainProgram = "systemctl";
      inherit (final) kmod util-linux;
      kbd = final.coreutils;
    }
    // features true on
    // features false off
  )
  ''
    mkdir -p "$out/bin" "$out/lib/systemd" "$out/example/systemd"
    for program in ${guest}/usr/bin/{systemd-*,*ctl,udevadm}; do
      ln -sf "/usr/bin/''${program##*/}" "$out/bin"
    done
    for entry in ${guest}/usr/lib/systemd/*; do
      ln -s "/usr/lib/systemd/''${entry##*/}" "$out/lib/systemd"
    done
    for kind in system user; do
      cp -r "${guest}/usr/lib/systemd/$kind" "$out/example/systemd/$kind"
    done
    for kind in sysctl tmpfiles; do
      cp -r "${guest}/usr/lib/$kind.d" "$out/example/$kind.d"
      chmod u+w "$out/example/$kind.d"
    done
    chmod u+w "$out/example/systemd/system"
    mkdir -p "$out/example/systemd/system/factory-reset.target.wants"
    # NixOS links to files of features that Debian packages separately.
    touch "$out"/example/tmpfiles.d/{portables,systemd-nspawn}.conf
    mkdir -p "$out/share" "$out/lib/udev"
    cp -r ${guest}/usr/share/dbus-1 "$out/share/dbus-1"
    chmod -R u+w "$out/share"
    rm -f "$out"/share/dbus-1/s*.conf
  ''
