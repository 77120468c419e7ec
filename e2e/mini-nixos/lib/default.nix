# A strict subset of nixpkgs' `lib`: what is here has nixpkgs' name and meaning,
# what is missing fails as a missing attribute.
let
  makeLib =
    overlay:
    let
      lib = base // overlay lib base;
      part = file: import file { inherit lib; };

      trivial = part ./trivial.nix;
      lists = part ./lists.nix;
      attrsets = part ./attrsets.nix;
      strings = part ./strings.nix;
      options = part ./options.nix;
      types = part ./types;
      definitions = part ./definitions.nix;
      modules = import ./modules.nix { inherit definitions lib; };

      # The ways to write a definition, without what only the evaluation uses.
      public = removeAttrs definitions [
        "asSubmodule"
        "discharge"
        "isDeclaration"
        "match"
        "pushDown"
        "pushDownIn"
      ];

      # Where lists and strings share a name, the flat one is the string's.
      base =
        lists
        # nixpkgs has these behind `lib.trivial` only.
        // removeAttrs trivial [
          "codeName"
          "release"
          "versionSuffix"
        ]
        // attrsets
        # nixpkgs has these behind `lib.strings` only.
        // removeAttrs strings [
          "escapeNixIdentifier"
          "escapeNixString"
          "sanitizeDerivationName"
          "storeDir"
          "versions"
        ]
        // options
        // removeAttrs public [ "defaultOrderPriority" "filterOverrides'" ]
        // modules
        // {
          inherit attrsets lists options strings trivial types;
          inherit (strings) versions;
          inherit (types) isOptionType isType mkOptionType setType;
          generators = part ./generators.nix;
          modules = public // modules;
          systems = part ./systems.nix;
          # What a package says of itself; of all licences and platforms, ours.
          licenses.asl20 = {
            spdxId = "Apache-2.0";
            free = true;
          };
          platforms = { inherit (base.systems.doubles) linux darwin; };
          # Of two packages with the same file, a lower priority wins.
          setPrio = priority: drv: drv // { meta = drv.meta or { } // { inherit priority; }; };
          hiPrio = base.setPrio (-10);

          # nixosSystem exists in `lib` only where nixpkgs is a flake; here it
          # costs nothing and saves each hive a special case.
          nixosSystem = args: import ../nixos/lib/eval-config.nix ({ inherit lib; } // args);

          extend = more: makeLib (trivial.composeExtensions overlay more);
        };
    in
    lib;
in
makeLib (_final: _prev: { })
