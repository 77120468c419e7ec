# Options that moved, vanished, or have a second name.
{ lib }:
let
  inherit (lib)
    getAttrFromPath
    mkIf
    mkMerge
    mkOption
    mkOverride
    setAttrByPath
    showFiles
    showOption
    ;
in
rec {
  # All definitions of one option, as a definition of another.
  mkAliasDefinitions = mkAliasAndWrapDefinitions lib.id;
  mkAliasAndWrapDefinitions = wrap: option: mkIf option.isDefined (wrap (mkMerge option.definitions));
  mkAliasAndWrapDefsWithPriority =
    wrap: option:
    mkIf option.isDefined (
      wrap (mkMerge (map (mkOverride (option.highestPrio or lib.defaultOverridePriority)) option.definitions))
    );
  mkDerivedConfig =
    opt: f: mkOverride (opt.highestPrio or lib.defaultOverridePriority) (f opt.value);

  mkRemovedOptionModule =
    path: instructions:
    { options, ... }:
    let
      opt = getAttrFromPath path options;
    in
    {
      options = setAttrByPath path (mkOption {
        visible = false;
        apply =
          _:
          throw "The option `${showOption path}' can no longer be used since it's been removed. ${instructions}";
      });
      config.assertions = [
        {
          assertion = !opt.isDefined;
          message = ''
            The option definition `${showOption path}' in ${showFiles opt.files} no longer has any effect; please remove it.
            ${instructions}
          '';
        }
      ];
    };

  mkRenamedOptionModule =
    from: to:
    doRename {
      inherit from to;
      visible = false;
      warn = true;
      use = builtins.trace "Obsolete option `${showOption from}' is used. It was renamed to `${showOption to}'.";
    };
  mkRenamedOptionModuleWith =
    {
      from,
      to,
      sinceRelease,
    }:
    let
      due = lib.oldestSupportedReleaseIsAtLeast sinceRelease;
    in
    doRename {
      inherit from to;
      visible = false;
      warn = due;
      use = lib.warnIf due "Obsolete option `${showOption from}' is used. It was renamed to `${showOption to}'.";
    };
  mkAliasOptionModule =
    from: to:
    doRename {
      inherit from to;
      visible = true;
      warn = false;
      use = lib.id;
    };
  mkAliasOptionModuleMD = mkAliasOptionModule;

  mkChangedOptionModule =
    from: to: change:
    mkMergedOptionModule [ from ] to change;
  mkMergedOptionModule =
    from: to: merge:
    { config, options, ... }:
    let
      # Marks "not set" in a way that reading the option cannot trip over.
      unset = "_mkMergedOptionModule";
      isSet = path: getAttrFromPath path config != unset;
      used = builtins.filter isSet from;
    in
    {
      options = builtins.foldl' lib.recursiveUpdate { } (
        map (
          path:
          setAttrByPath path (mkOption {
            visible = false;
            default = unset;
          })
        ) from
      );
      config = {
        warnings = map (
          path:
          "The option `${showOption path}' defined in ${showFiles (getAttrFromPath path options).files} has been changed to `${showOption to}' that has a different type. Please read `${showOption to}' documentation and update your configuration accordingly."
        ) used;
      }
      // setAttrByPath to (mkMerge (lib.optional (used != [ ]) (merge config)));
    };

  doRename =
    {
      from,
      to,
      visible,
      warn,
      use,
      withPriority ? true,
      condition ? true,
    }:
    { config, options, ... }:
    let
      old = getAttrFromPath from options;
      new = lib.attrByPath to { } options;
      forward = if withPriority then mkAliasAndWrapDefsWithPriority else mkAliasAndWrapDefinitions;
      missing = abort "Renaming error: option `${showOption to}' does not exist.";
    in
    {
      options = setAttrByPath from (mkOption {
        inherit visible;
        type = new.type or (lib.types.submodule { });
        description = "Alias of {option}`${showOption to}`.";
        apply = _: use (lib.attrByPath to missing config);
      });
      config = mkIf condition (mkMerge [
        (lib.optionalAttrs (options ? warnings) {
          warnings =
            lib.optional (warn && old.isDefined)
              "The option `${showOption from}' defined in ${showFiles old.files} has been renamed to `${showOption to}'.";
        })
        (forward (setAttrByPath to) old)
      ]);
    };
}
