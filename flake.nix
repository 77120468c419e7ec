{
  description = "NixOS clusters from a hive and an empty hypervisor";

  # For the program and the reference cluster. A cluster of yours brings a nixpkgs of its
  # own, 25.05 or later, and hands it to lib.hive.
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      forEachSystem = f: lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});

      nixbench =
        pkgs:
        pkgs.callPackage ./package.nix {
          # The newest Go that this nixpkgs is known to have.
          buildGoModule = pkgs.buildGo126Module or pkgs.buildGoModule;
          go = pkgs.go_1_26 or pkgs.go;
          commit = self.shortRev or self.dirtyShortRev or "";
        };

      modules = {
        guest = ./modules/guest.nix;
        image = ./modules/image.nix;
        runtime = ./modules/runtime.nix;
        kubernetes = ./modules/kubernetes;
        kubernetes-control-plane = ./modules/kubernetes/control-plane.nix;
        kubernetes-worker = ./modules/kubernetes/worker.nix;
      };
    in
    {
      packages = forEachSystem (pkgs: {
        default = nixbench pkgs;
      });
      overlays.default = final: _prev: { nixbench = nixbench final; };

      apps = forEachSystem (pkgs: {
        # nix run github:nixbench/nixbench -- plan
        default = {
          type = "app";
          program = lib.getExe (nixbench pkgs);
          meta.description = "The command nixbench";
        };
        # nix run .#deploy -- --yes
        deploy = self.lib.mkDeployApp { inherit (pkgs.stdenv.hostPlatform) system; };
      });

      # As sets, since a module that is only a path is none to old versions of Nix.
      nixosModules = lib.mapAttrs (_: module: { imports = [ module ]; }) modules;

      lib = {
        # nixbenchHive = nixbench.lib.hive { inherit nixpkgs; hive = ./hive.nix; };
        #
        # The hive is a file, a set, or a function of `nixpkgs` (a package set) and
        # `modules` (the folder of these modules), either of which it may leave out.
        hive =
          {
            hive,
            nixpkgs ? self.inputs.nixpkgs,
            system ? "x86_64-linux",
            config ? { },
            overlays ? [ ],
          }:
          let
            pkgs = import nixpkgs { inherit system config overlays; };
            written = if lib.isFunction hive || builtins.isAttrs hive then hive else import hive;
            offered = {
              nixpkgs = pkgs;
              modules = ./modules;
            };
            called =
              if lib.isFunction written then
                written (builtins.intersectAttrs (lib.functionArgs written) offered)
              else
                written;
            meta = called.meta or called.network or { };
          in
          # Colmena calls it network, too; two of them would be one too many.
          builtins.removeAttrs called [ "network" ]
          // {
            meta =
              if lib.isFunction meta then
                {
                  # Nobody can look into a function for nixpkgs.
                  imports = [
                    (lib.setFunctionArgs (args: builtins.removeAttrs (meta args) [ "nixpkgs" ]) (lib.functionArgs meta))
                  ];
                  nixpkgs = pkgs;
                }
              else
                meta // { nixpkgs = pkgs; };
          };

        # apps.x86_64-linux.deploy = nixbench.lib.mkDeployApp { system = "x86_64-linux"; };
        #
        # `nix run .#deploy -- ARGUMENTS` is then `nixbench apply ARGUMENTS` of the flake in
        # the working folder. A name such as github:me/cluster makes it that flake's,
        # wherever it runs.
        mkDeployApp =
          {
            system ? "x86_64-linux",
            flake ? ".",
          }:
          let
            pkgs = nixpkgs.legacyPackages.${system};
            script = pkgs.writeShellScript "deploy" ''
              exec ${lib.getExe (nixbench pkgs)} apply --flake ${lib.escapeShellArg flake} "$@"
            '';
          in
          {
            type = "app";
            program = "${script}";
            meta.description = "Make the cluster what its hive says";
          };
      };

      # The reference cluster: `nixbench plan` in this folder.
      nixbenchHive = self.lib.hive { hive = ./hive.nix; };

      templates = {
        default = self.templates.kubernetes;
        kubernetes = {
          path = ./templates/kubernetes;
          description = "A Kubernetes cluster of machines that nixbench boots";
          welcomeText = "Look through hive.nix, then: `nix run .#nixbench -- plan`, and `nix run .#deploy`.";
        };
        existing-machines = {
          path = ./templates/existing-machines;
          description = "NixOS machines that exist already";
          welcomeText = "Put your machines into hive.nix, then: `nix run .#nixbench -- plan`, and `nix run .#deploy`.";
        };
        from-colmena = {
          path = ./templates/from-colmena;
          description = "A Colmena hive, which both tools can deploy";
          welcomeText = "Put your hive.nix in place of this one, then: `nix run .#nixbench -- plan`.";
        };
      };

      # That the modules make systems, with this nixpkgs and without facts.
      checks = forEachSystem (
        pkgs:
        let
          system =
            name: more:
            (lib.nixosSystem {
              specialArgs = {
                inherit name;
                runtime = null;
              };
              modules = more ++ [
                modules.guest
                {
                  nixpkgs.hostPlatform = pkgs.stdenv.hostPlatform.system;
                  networking.hostName = "";
                  system = { inherit name; stateVersion = "25.05"; };
                }
              ];
            }).config.system.build.toplevel;
        in
        {
          package = nixbench pkgs;
          control-plane = system "control-plane" [ modules.kubernetes-control-plane ];
          worker = system "worker" [ modules.kubernetes-worker ];
          uefi = system "uefi" [ { nixbench.guest.firmware = "uefi"; } ];
          container = system "container" [ { boot.isContainer = true; } ];
        }
      );

      devShells = forEachSystem (pkgs: {
        default = pkgs.mkShell {
          inputsFrom = [ (nixbench pkgs) ];
          packages = [
            pkgs.busybox
            pkgs.git
            pkgs.gopls
          ];
        };
      });

      formatter = forEachSystem (pkgs: pkgs.nixfmt-tree or pkgs.nixfmt-rfc-style);
    };
}
