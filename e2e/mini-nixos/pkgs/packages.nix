# The packages. Most programs of a node come from the Debian guest it runs on;
# their packages hold links to them, and so have a store path, a `bin` and a
# closure like any other.
final: _prev:
let
  inherit (final) lib;

  # fromHost NAME [ PROGRAM ]: a package whose bin/ links to the guest's
  # programs, each in /usr/bin unless it says where.
  fromHost =
    pname: programs:
    fromHostWith { inherit pname programs; };
  fromHostWith =
    {
      pname,
      programs,
      version ? "0-host",
      mainProgram ? baseNameOf (builtins.head programs),
      links ? { },
      passthru ? { },
    }:
    final.runCommand "${pname}-${version}"
      {
        passthru = passthru // { inherit pname version programs; };
        meta = { inherit mainProgram; };
      }
      (
        ''
          mkdir -p "$out/bin"
        ''
        + lib.concatMapStrings (p: ''
          ln -s ${if lib.hasPrefix "/" p then p else "/usr/bin/${p}"} "$out/bin/${baseNameOf p}"
        '') programs
        + lib.concatStrings (
          lib.mapAttrsToList (to: from: ''
            mkdir -p "$(dirname "$out/${to}")"
            ln -s ${from} "$out/${to}"
          '') links
        )
      );
  sbin = map (p: "/usr/sbin/${p}");

  bash = fromHostWith {
    pname = "bash";
    programs = [ "/bin/bash" "/bin/sh" ];
    passthru.shellPath = "/bin/bash";
  };
in
{
  inherit fromHost bash;
  bashInteractive = bash;
  runtimeShell = "${final.bash}/bin/bash";
  runtimeShellPackage = final.bash;

  coreutils = fromHost "coreutils" [
    "[" "b2sum" "base32" "base64" "basename" "cat" "chgrp" "chmod" "chown" "cksum" "comm" "cp"
    "cut" "date" "dd" "df" "dirname" "du" "echo" "env" "expand" "expr" "factor" "false" "fmt"
    "fold" "groups" "head" "hostid" "id" "install" "join" "link" "ln" "logname" "ls" "md5sum"
    "mkdir" "mkfifo" "mknod" "mktemp" "mv" "nice" "nl" "nohup" "nproc" "numfmt" "od" "paste"
    "pathchk" "pr" "printenv" "printf" "pwd" "readlink" "realpath" "rm" "rmdir" "seq" "sha1sum"
    "sha224sum" "sha256sum" "sha384sum" "sha512sum" "shred" "shuf" "sleep" "sort" "split" "stat"
    "stdbuf" "stty" "sum" "sync" "tac" "tail" "tee" "test" "timeout" "touch" "tr" "true"
    "truncate" "tsort" "tty" "uname" "unexpand" "uniq" "unlink" "users" "wc" "who" "whoami" "yes"
    "/usr/sbin/chroot"
  ];
  findutils = fromHost "findutils" [ "find" "xargs" ];
  diffutils = fromHost "diffutils" [ "diff" "cmp" "diff3" "sdiff" ];
  gnugrep = fromHost "gnugrep" [ "grep" "egrep" "fgrep" ];
  gnused = fromHost "gnused" [ "sed" ];
  gawk = fromHost "gawk" [ "awk" ];
  gnutar = fromHost "gnutar" [ "tar" ];
  gzip = fromHost "gzip" [ "gzip" "gunzip" "zcat" ];
  xz = fromHost "xz" [ "xz" "unxz" "xzcat" ];
  zstd = fromHost "zstd" [ "zstd" "unzstd" "zstdcat" ];
  jq = fromHost "jq" [ "jq" ];
  curl = fromHost "curl" [ "curl" ];
  openssl = fromHost "openssl" [ "openssl" ];
  hostname = fromHost "hostname" [ "hostname" ];
  procps = fromHost "procps" [ "ps" "pgrep" "pkill" "free" "top" "uptime" "/usr/sbin/sysctl" ];
  shadow = fromHost "shadow" (
    [ "passwd" "su" "/usr/sbin/nologin" ]
    ++ sbin [ "useradd" "usermod" "userdel" "groupadd" "groupmod" "groupdel" "chpasswd" ]
  )
  // { su = final.shadow; };
  sudo = fromHost "sudo" [ "sudo" ];

  systemd = fromHostWith {
    pname = "systemd";
    version = "257";
    mainProgram = "systemctl";
    programs = [
      "systemctl" "journalctl" "systemd-run" "systemd-tmpfiles" "systemd-notify" "systemd-cat"
      "systemd-analyze" "systemd-escape" "systemd-creds" "systemd-detect-virt" "networkctl"
      "hostnamectl" "loginctl" "busctl" "resolvectl" "timedatectl" "udevadm" "bootctl"
    ];
    links."lib/systemd" = "/usr/lib/systemd";
  };
  systemdMinimal = final.systemd;

  nix = fromHostWith {
    pname = "nix";
    version = "2.26";
    mainProgram = "nix";
    programs = [
      "nix" "nix-build" "nix-channel" "nix-collect-garbage" "nix-copy-closure" "nix-daemon"
      "nix-env" "nix-hash" "nix-instantiate" "nix-prefetch-url" "nix-shell" "nix-store"
    ];
  };

  util-linux = fromHost "util-linux" (
    [
      "mount" "umount" "findmnt" "mountpoint" "lsblk" "flock" "nsenter" "unshare" "setsid" "logger"
      "lscpu" "dmesg" "getopt" "hexdump" "more" "rename" "setpriv" "uuidgen" "taskset"
      "choom" "fallocate" "ionice" "lslocks" "kill" "namei" "prlimit" "rev" "script" "last"
    ]
    ++ sbin [ "blkid" "blockdev" "fsck" "fstrim" "losetup" "mkfs" "mkswap" "swapon" "swapoff" "sfdisk" "wipefs" "blkdiscard" "hwclock" "pivot_root" "switch_root" "agetty" "sulogin" ]
  );
  e2fsprogs = fromHost "e2fsprogs" (sbin [ "mkfs.ext4" "mke2fs" "resize2fs" "e2fsck" "tune2fs" "dumpe2fs" ]);
  cloud-utils = fromHost "cloud-utils" [ "growpart" ];
  iproute2 = fromHost "iproute2" [ "ip" "ss" "/usr/sbin/tc" "/usr/sbin/bridge" ];
  iptables = fromHost "iptables" (
    sbin [ "iptables" "ip6tables" "iptables-save" "ip6tables-save" "iptables-restore" "ip6tables-restore" ]
  );
  nftables = fromHost "nftables" (sbin [ "nft" ]);
  ipset = fromHost "ipset" (sbin [ "ipset" ]);
  ebtables = fromHost "ebtables" (sbin [ "ebtables" ]);
  kmod = fromHost "kmod" ([ "kmod" ] ++ sbin [ "modprobe" "lsmod" "insmod" "rmmod" "modinfo" "depmod" ]);
  ethtool = fromHost "ethtool" (sbin [ "ethtool" ]);
  htop = fromHost "htop" [ "htop" ];
  socat = fromHost "socat" [ "socat" ];
  conntrack-tools = fromHost "conntrack-tools" (sbin [ "conntrack" ]);
  iputils = fromHost "iputils" [ "ping" ];
  inotify-tools = fromHost "inotify-tools" [ "inotifywait" "inotifywatch" ];
  openssh = fromHost "openssh" [
    "ssh" "scp" "sftp" "ssh-add" "ssh-agent" "ssh-keygen" "ssh-keyscan" "/usr/sbin/sshd"
  ];
  qemu-utils = fromHost "qemu-utils" [ "qemu-img" ];
  qemu = fromHost "qemu" [ "qemu-img" "qemu-system-x86_64" ] // {
    ga = fromHost "qemu-ga" (sbin [ "qemu-ga" ]);
  };
  qemu_kvm = final.qemu;
  dnsmasq = fromHost "dnsmasq" (sbin [ "dnsmasq" ]);
  git = fromHost "git" [ "git" ];
  gitMinimal = final.git;

  containerd = fromHost "containerd" [ "containerd" "ctr" "containerd-shim-runc-v2" "containerd-shim" ];
  runc = fromHost "runc" (sbin [ "runc" ]);
  cri-tools = fromHost "cri-tools" [ "crictl" ];
  cri-o = fromHost "cri-o" [ "crio" "pinns" ];
  conmon = fromHost "conmon" [ "conmon" ];
  skopeo = fromHost "skopeo" [ "skopeo" ];
  etcd = fromHost "etcd" [ "etcd" "etcdctl" ];
  kubernetes = fromHostWith {
    pname = "kubernetes";
    version = "1.34.4";
    mainProgram = "kubelet";
    # What kubeadm runs in containers is not on the guest.
    programs = [ "kubelet" "kubeadm" "kubectl" ];
  };
  kubectl = fromHost "kubectl" [ "kubectl" ];
  kubernetes-helm = fromHost "kubernetes-helm" [ "helm" ];
  fluxcd = fromHost "fluxcd" [ "flux" ];
  cni-plugins = fromHost "cni-plugins" (
    map (p: "/usr/lib/cni/${p}") [
      "bandwidth" "bridge" "dhcp" "firewall" "host-device" "host-local" "ipvlan" "loopback"
      "macvlan" "portmap" "ptp" "sbr" "static" "tuning" "vlan" "vrf"
    ]
  );
  cni-plugin-flannel = fromHost "cni-plugin-flannel" [ "/usr/lib/cni/flannel" ];
  slurm = fromHostWith {
    pname = "slurm";
    version = "24.11.5";
    programs = [
      "sinfo" "squeue" "srun" "sbatch" "salloc" "scontrol" "scancel" "sacct" "sacctmgr" "sattach" "sbcast" "sdiag" "sstat"
    ]
    ++ sbin [ "sackd" "slurmctld" "slurmd" "slurmdbd" ];
  };
  mariadb = fromHostWith {
    pname = "mariadb-server";
    version = "11.8-host";
    programs = [ "my_print_defaults" "resolveip" ];
    links = {
      "bin/mysql" = "/usr/bin/mariadb";
      "bin/mysqld" = "/usr/sbin/mariadbd";
      "sbin/mariadbd" = "/usr/sbin/mariadbd";
      "bin/mysql_install_db" = "/usr/bin/mariadb-install-db";
      "lib/mysql" = "/usr/lib/mysql";
      "share/mariadb" = "/usr/share/mariadb";
    };
  };
  flux-core = fromHostWith {
    pname = "flux-core";
    version = "0.88.0";
    programs = [ "/opt/flux/bin/flux" ];
  };
  munge = fromHost "munge" [ "munge" "unmunge" "/usr/sbin/mungekey" "/usr/sbin/munged" ];

  hello =
    final.runCommand "hello-2.12"
      {
        passthru = { pname = "hello"; version = "2.12"; };
        meta = {
          description = "Program that produces a familiar, friendly greeting";
          mainProgram = "hello";
        };
      }
      ''
        mkdir -p "$out/bin"
        printf '%s\n' '#!${final.busybox}/bin/sh' 'echo "Hello, world!"' > "$out/bin/hello"
        chmod +x "$out/bin/hello"
      '';

  # What a kernel is to NixOS: a package set per version. The files say which
  # one they stand for, so that a changed kernel changes the system.
  linuxPackagesFor = kernel: { inherit kernel; recurseForDerivations = true; };
  linux_6_12 = final.makeKernel "6.12.30";
  linux_latest = final.makeKernel "6.14.7";
  makeKernel =
    version:
    final.runCommand "linux-${version}"
      {
        passthru = { pname = "linux"; inherit version; modDirVersion = version; };
      }
      ''
        mkdir -p "$out/lib/modules/${version}"
        echo "placeholder for the kernel ${version}" > "$out/bzImage"
      '';
  linuxPackages = final.linuxPackages_6_12;
  linuxPackages_6_12 = final.linuxPackagesFor final.linux_6_12;
  linuxPackages_latest = final.linuxPackagesFor final.linux_latest;
}
