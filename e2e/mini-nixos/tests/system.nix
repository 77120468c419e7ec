# Systems that the tests build and switch between.
{
  fixture,
  lib ? import (fixture + "/lib"),
}:
let
  evaluate =
    modules:
    import (fixture + "/nixos/lib/eval-config.nix") {
      inherit lib;
      system = "x86_64-linux";
      modules = [ base ] ++ modules;
    };

  base =
    { lib, pkgs, ... }:
    {
      networking.hostName = "alpha";
      system.stateVersion = "25.05";
      # The tests have no network to filter.
      networking.firewall.enable = lib.mkDefault false;

      environment.etc = {
        "motd".text = lib.mkDefault "first\n";
        "app/link".source = ./samples/once.nix;
        "app/secret" = {
          text = "top ${pkgs.hello}\n";
          mode = "0440";
        };
      };
      environment.systemPackages = [ pkgs.hello ];
      boot.kernel.sysctl."net.ipv4.ip_forward" = true;
      systemd.tmpfiles.rules = [ "d /var/lib/alpha 0755 root root -" ];

      systemd.services = {
        plain = {
          description = "Plain";
          wantedBy = [ "multi-user.target" ];
          environment.GREETING = lib.mkDefault "hi 100%";
          path = [ pkgs.hello ];
          script = "exec sleep infinity";
        };
        reloads = {
          wantedBy = [ "multi-user.target" ];
          serviceConfig.ExecStart = "/bin/true";
          reloadTriggers = [ "one" ];
        };
        keeps = {
          wantedBy = [ "multi-user.target" ];
          restartIfChanged = false;
          serviceConfig.ExecStart = lib.mkDefault "/bin/true";
        };
        restarts = {
          wantedBy = [ "multi-user.target" ];
          stopIfChanged = false;
          serviceConfig.ExecStart = lib.mkDefault "/bin/true";
        };
        listens.serviceConfig.ExecStart = lib.mkDefault "/bin/true";
        signals = {
          wantedBy = [ "multi-user.target" ];
          serviceConfig.ExecStart = "/bin/true";
          serviceConfig.ExecReload = lib.mkDefault "/bin/true";
        };
        silent = {
          wantedBy = [ "multi-user.target" ];
          serviceConfig.ExecStart = "/bin/true";
        };
      };
      systemd.sockets.listens = {
        wantedBy = [ "sockets.target" ];
        listenStreams = [ "/run/listens" ];
      };
    };
in
rec {
  inherit evaluate;

  first = evaluate [
    {
      systemd.services.gone = {
        wantedBy = [ "multi-user.target" ];
        serviceConfig.ExecStart = "/bin/true";
      };
      environment.etc."gone/file".text = "gone";
      environment.etc."gone/copy" = { text = "gone"; mode = "0600"; };
    }
  ];

  second = evaluate [
    (
      { lib, ... }:
      {
        environment.etc.motd.text = "second\n";
        # The guest's own service: a drop-in that it takes up with a reload.
        services.openssh.enable = true;
        systemd.services = {
          plain.environment.GREETING = "hello";
          signals.serviceConfig.ExecReload = "/bin/false";
          silent.serviceConfig.ExecReload = "/bin/true";
          reloads.reloadTriggers = lib.mkForce [ "two" ];
          keeps.serviceConfig.ExecStart = "/bin/false";
          restarts.serviceConfig.ExecStart = "/bin/false";
          listens.serviceConfig.ExecStart = "/bin/false";
          fresh = {
            wantedBy = [ "multi-user.target" ];
            startAt = "daily";
            serviceConfig.ExecStart = "/bin/true";
          };
        };
      }
    )
  ];

  # An activation that fails in the middle, and a check that refuses.
  broken = evaluate [
    {
      system.activationScripts.aaa = "false";
      system.activationScripts.zzz = "touch /run/zzz-ran";
    }
  ];
  # NixOS ends a check at the first command that fails.
  refused = evaluate [ { system.preSwitchChecks.never = ''echo "not $2 to $1"; false; true''; } ];
  # Another rule for temporary files.
  ruled = evaluate [ { systemd.tmpfiles.rules = [ "d /var/lib/beta 0755 root root -" ]; } ];
  people = evaluate [
    {
      users.groups.app = { };
      users.users = {
        alice = {
          isNormalUser = true;
          uid = 1234;
          extraGroups = [ "wheel" ];
          openssh.authorizedKeys.keys = [ "ssh-ed25519 AAAA alice" ];
        };
        app = { isSystemUser = true; group = "app"; };
      };
    }
  ];
  notes =
    text:
    evaluate [
      {
        systemd.user.services.notes = {
          wantedBy = [ "default.target" ];
          serviceConfig.ExecStart = "/bin/echo ${text}";
        };
        system.userActivationScripts.notes = "true";
      }
    ];
  notesBefore = notes "before";
  notesAfter = notes "after";
  incompatible = evaluate [ { system.initInterfaceVersion = 3; } ];
  unloadable = evaluate [ { system.build.installBootLoader = "/bin/false"; } ];

  # Everything at once: each module of the slice turned on.
  everything = evaluate [
    (
      { lib, pkgs, ... }:
      {
        boot.initrd.availableKernelModules = [ "virtio_blk" ];
        boot.kernelModules = [ "br_netfilter" ];
        boot.kernelPackages = pkgs.linuxPackages_latest;
        boot.kernelParams = [ "quiet" ];
        boot.loader.systemd-boot.enable = true;
        documentation.enable = false;
        environment.variables.EDITOR = "vi";
        fileSystems."/" = { device = "/dev/vda1"; fsType = "ext4"; };
        i18n.defaultLocale = "C.UTF-8";
        networking = {
          domain = "example.org";
          firewall = {
            enable = lib.mkForce true;
            allowedTCPPorts = [ 443 80 443 ];
            allowedTCPPortRanges = [ { from = 30000; to = 32767; } ];
            trustedInterfaces = [ "cni0" ];
            checkReversePath = "loose";
            extraCommands = "ip46tables -A nixos-fw -p vrrp -j nixos-fw-accept";
          };
          hosts."10.0.0.2" = [ "beta" ];
          interfaces.eth0.ipv4.addresses = [ { address = "10.0.0.1"; prefixLength = 24; } ];
          nameservers = [ "10.0.0.254" ];
          useNetworkd = true;
        };
        nix = {
          extraOptions = "keep-outputs = true\n";
          gc.automatic = true;
          settings.experimental-features = [ "nix-command" "flakes" ];
        };
        nixpkgs.overlays = [ (_final: prev: { hello = prev.hello // { marked = true; }; }) ];
        nixpkgs.config.allowUnfree = true;
        security.sudo.wheelNeedsPassword = false;
        services = {
          journald.extraConfig = "SystemMaxUse=100M";
          openssh = { enable = true; settings.PasswordAuthentication = false; };
          qemuGuest.enable = true;
          resolved.enable = true;
        };
        specialisation.quiet.configuration.boot.kernelParams = [ "loglevel=0" ];
        systemd.mounts = [
          { what = "tmpfs"; where = "/mnt/big-disk"; type = "tmpfs"; }
        ];
        systemd.paths.watched.pathConfig.PathExists = "/run/watched";
        systemd.slices.kube.sliceConfig.CPUWeight = 50;
        systemd.targets.cluster.wants = [ "plain.service" ];
        systemd.tmpfiles.settings."10-app"."/var/lib/app".d.mode = "0700";
        systemd.services.nix-daemon.serviceConfig.LimitNOFILE = 1024;
        systemd.services.masked.enable = false;
        system.extraDependencies = [ pkgs.emptyFile ];
        time.timeZone = "UTC";
        users.groups.app = { };
        users.users = {
          alice = {
            isNormalUser = true;
            extraGroups = [ "wheel" ];
            openssh.authorizedKeys.keys = [ "ssh-ed25519 AAAA alice" ];
          };
          app = { isSystemUser = true; group = "app"; };
        };
        virtualisation.containerd = {
          enable = true;
          settings.plugins."io.containerd.grpc.v1.cri".sandbox_image = "pause:3.10";
        };
        virtualisation.cri-o.enable = true;
      }
    )
  ];

  container = evaluate [
    { boot.isContainer = true; networking.hostName = lib.mkForce ""; }
  ];

  failing = evaluate [
    {
      assertions = [
        { assertion = false; message = "alpha is not beta"; }
      ];
    }
  ];
  misspelt = evaluate [ { services.opensshd.enable = true; } ];

  # What is compared between this lib and nixpkgs' own.
  etcOf = system: lib.mapAttrs (_: e: "${e.target} ${e.mode} ${e.source}") system.config.environment.etc;
  same = {
    etc = etcOf everything;
    toplevel = everything.config.system.build.toplevel.drvPath;
    container = container.config.system.build.toplevel.drvPath;
    images = lib.mapAttrs (_: i: i.drvPath + i.filePath) everything.config.system.build.images;
  };

  twenty = lib.genAttrs (map (i: "node-${toString i}") (lib.range 1 20)) (
    name:
    (evaluate [
      (
        { lib, ... }:
        {
          options.deployment.tags = lib.mkOption { type = lib.types.listOf lib.types.str; };
          config.deployment.tags = [ name ];
        }
      )
    ]).config.deployment
  );
}
