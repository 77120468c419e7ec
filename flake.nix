{
  description = "NixOS clusters from a hive and an empty hypervisor";

  # The nixpkgs of the program and of the reference cluster. Your own cluster uses the
  # nixpkgs that you pass to lib.hive: 25.05 or later.
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";

  outputs =
    { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      linuxSystems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      # For macOS only where nixpkgs supports it: after 26.05 it does not support x86_64-darwin.
      systems = linuxSystems ++ lib.filter (system: nixpkgs.legacyPackages ? ${system}) [ "aarch64-darwin" ];
      forSystems = systems: f: lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
      forEachSystem = forSystems systems;

      nixbench =
        pkgs:
        pkgs.callPackage ./package.nix {
          # Go 1.26 if this nixpkgs has it, otherwise its default Go.
          buildGoModule = pkgs.buildGo126Module or pkgs.buildGoModule;
          go = pkgs.go_1_26 or pkgs.go;
          commit = self.shortRev or self.dirtyShortRev or "";
        };

      modules = {
        before-switch = ./modules/before-switch.nix;
        deployment = ./modules/nixos-configuration.nix; # for systems in nixosConfigurations
        guest = ./modules/guest.nix;
        handover = ./modules/handover;
        image = ./modules/image.nix;
        runtime = ./modules/runtime.nix;
        flux = ./modules/flux;
        flux-compute = ./modules/flux/compute.nix;
        flux-leader = ./modules/flux/leader.nix;
        kubernetes = ./modules/kubernetes;
        kubernetes-control-plane = ./modules/kubernetes/control-plane.nix;
        kubernetes-worker = ./modules/kubernetes/worker.nix;
        kubernetes-client = ./modules/kubernetes/client.nix;
        slurm = ./modules/slurm;
        slurm-compute = ./modules/slurm/compute.nix;
        slurm-controller = ./modules/slurm/controller.nix;
        slurm-login = ./modules/slurm/login.nix;
      };

      # Parts of the templates' welcomeText.
      addToGit = "In a git repository, first run `git add .`, because Nix sees only files that git knows.";
      ownNames = "Each cluster needs a name, a network and an address range of its own, which `nixbench init --flake` takes from the folder.";
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

      # As sets, because old versions of Nix do not accept a path as a module.
      nixosModules = lib.mapAttrs (_: module: { imports = [ module ]; }) modules;

      lib = {
        # nixbenchHive = nixbench.lib.hive { inherit nixpkgs; hive = ./hive.nix; };
        #
        # The hive is a file, a set, or a function. A function gets the arguments `nixpkgs`
        # (a package set) and `modules` (the folder of these modules), if it has them.
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
            rawHive = if lib.isFunction hive || builtins.isAttrs hive then hive else import hive;
            arguments = {
              nixpkgs = pkgs;
              modules = ./modules;
            };
            hiveSet =
              if lib.isFunction rawHive then
                rawHive (builtins.intersectAttrs (lib.functionArgs rawHive) arguments)
              else
                rawHive;
            meta = hiveSet.meta or hiveSet.network or { };
          in
          # `network` is Colmena's other name of `meta`; a hive must not have both.
          builtins.removeAttrs hiveSet [ "network" ]
          // {
            meta =
              if lib.isFunction meta then
                {
                  # A function's result is not available here, so its nixpkgs is removed
                  # when the function is called.
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
        # Then `nix run .#deploy -- ARGUMENTS` runs `nixbench apply ARGUMENTS` with the flake
        # in the working folder. If `flake` is a flake reference such as github:me/cluster, it
        # uses that flake instead, in any folder.
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
            meta.description = "Deploy the hive with nixbench apply";
          };
      };

      # The reference cluster, for example for `nixbench plan` in this folder.
      nixbenchHive = self.lib.hive { hive = ./hive.nix; };

      templates = {
        default = self.templates.kubernetes;
        kubernetes = {
          path = ./templates/kubernetes;
          description = "A Kubernetes cluster on virtual machines that nixbench creates";
          welcomeText = "${addToGit} Read hive.nix and change what you need; ${ownNames} Then run `nix run .#nixbench -- plan` and `nix run .#deploy`.";
        };
        schedulers = {
          path = ./templates/schedulers;
          description = "A cluster of virtual machines that runs Kubernetes or SLURM";
          welcomeText = "${addToGit} Read hive.nix and change what you need; ${ownNames} Then run `nix run .#nixbench -- plan` and `nix run .#deploy -- --set scheduler=slurm`.";
        };
        existing-machines = {
          path = ./templates/existing-machines;
          description = "Existing NixOS machines";
          welcomeText = "${addToGit} Write your machines into hive.nix. Then run `nix run .#nixbench -- plan` and `nix run .#deploy`.";
        };
        from-colmena = {
          path = ./templates/from-colmena;
          description = "A Colmena hive, which Colmena and nixbench can deploy";
          welcomeText = "${addToGit} Replace hive.nix with your own. Then run `nix run .#nixbench -- plan`.";
        };
      };

      # Builds the package, and systems from the modules without facts, with this nixpkgs. Then runs tests in virtual machines.
      checks = forSystems linuxSystems (
        pkgs:
        let
          system =
            name: extraModules:
            (lib.nixosSystem {
              specialArgs = {
                inherit name;
                runtime = null;
              };
              modules = extraModules ++ [
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
        # Tests in virtual machines: the builder needs KVM. The mini NixOS of our own tests has no test driver.
        // lib.optionalAttrs (pkgs ? testers.runNixOSTest) (
          import ./e2e/nixos-tests {
            inherit pkgs;
            nixbench = nixbench pkgs;
            nixpkgs = nixpkgs.outPath;
          }
        )
      );

      devShells = forEachSystem (pkgs: {
        default = pkgs.mkShell {
          inputsFrom = [ (nixbench pkgs) ];
          packages = [
            pkgs.git
            pkgs.gopls
          ]
          ++ lib.optional pkgs.stdenv.hostPlatform.isLinux pkgs.busybox;
        };
      });

      formatter = forEachSystem (pkgs: pkgs.nixfmt-tree or pkgs.nixfmt-rfc-style);
    };
}
