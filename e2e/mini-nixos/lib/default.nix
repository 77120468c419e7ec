# A strict subset of nixpkgs' `lib`: what is here has nixpkgs' name and meaning,
# what is missing fails as a missing attribute.
let
  makeLib =
    overlay:
    let
      lib = base // overlay lib base;
      call = file: import file { inherit lib; };

      trivial = call ./trivial.nix;
      debug = call ./debug.nix;
      asserts = call ./asserts.nix;
      lists = call ./lists.nix;
      attrsets = call ./attrsets.nix;
      strings = call ./strings.nix;
      stringsWithDeps = call ./strings-with-deps.nix;
      versions = call ./versions.nix;
      meta = call ./meta.nix;
      sources = call ./sources.nix;
      generators = call ./generators.nix;
      options = call ./options.nix;
      types = call ./types.nix;
      modules = call ./modules.nix // call ./modules-rename.nix;
      systems = call ./systems.nix;
      fixedPoints = call ./fixed-points.nix;

      # Flat names, as `lib.mkIf` or `lib.optional`. Only the namespaces whose
      # members nixpkgs re-exports; `lib.types` and friends stay behind their name.
      base =
        removeAttrs trivial [
          "codeName"
          "oldestSupportedRelease"
          "release"
          "versionSuffix"
        ]
        // debug
        // asserts
        // removeAttrs lists [
          "commonPrefix"
          "findFirstIndex"
        ]
        // removeAttrs attrsets [
          "longestValidPathPrefix"
          "unionOfDisjoint"
        ]
        # Where lists and strings share a name, the flat one is the string's, but for replicate.
        // removeAttrs strings [
          "charToInt"
          "escapeNixIdentifier"
          "escapeNixString"
          "floatToString"
          "isConvertibleWithToString"
          "join"
          "replicate"
          "sanitizeDerivationName"
          "storeDir"
        ]
        // stringsWithDeps
        // {
          inherit (versions) splitVersion;
        }
        // meta
        // sources
        // removeAttrs options [
          "literalCode"
          "renderOptionValue"
          "showDefs"
        ]
        // removeAttrs modules [
          "defaultOrderPriority"
          "defaultOverridePriority"
          "filterOverrides'"
          "importApply"
          "importJSON"
          "importTOML"
          "mergeAttrDefinitionsWithPrio"
          "mkAliasAndWrapDefsWithPriority"
        ]
        // fixedPoints
        // {
          inherit
            asserts
            attrsets
            debug
            fixedPoints
            generators
            lists
            meta
            modules
            options
            sources
            strings
            stringsWithDeps
            systems
            trivial
            types
            versions
            ;
          inherit (types)
            defaultFunctor
            defaultTypeMerge
            isOptionType
            isType
            mkOptionType
            setType
            ;

          # nixosSystem exists in `lib` only where nixpkgs is a flake; here it
          # costs nothing and saves each hive a special case.
          nixosSystem = args: import ../nixos/lib/eval-config.nix ({ inherit lib; } // args);

          extend = f: makeLib (fixedPoints.composeExtensions overlay f);
        };
    in
    lib;
in
makeLib (_final: _prev: { })
