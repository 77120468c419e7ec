# What the modules of this folder share: the `utils` argument of NixOS modules.
{ lib }:
rec {
  # "/dev/disk/by-label/x" -> "dev-disk-by\x2dlabel-x"
  escapeSystemdPath =
    s:
    let
      trimmed = lib.removeSuffix "/" (lib.removePrefix "/" s);
    in
    if trimmed == "" then
      "-"
    else
      builtins.replaceStrings
        [ "/" "-" " " "\\" ]
        [ "-" "\\x2d" "\\x20" "\\x5c" ]
        trimmed;

  # One argument of an Exec line: systemd expands % and $ there.
  escapeSystemdExecArg =
    arg:
    builtins.replaceStrings
      [ "%" "$" ]
      [ "%%" "$$" ]
      (builtins.toJSON (toString arg));
  escapeSystemdExecArgs = lib.concatMapStringsSep " " escapeSystemdExecArg;

  # A systemd boolean, number, string or path.
  toOption = v: if builtins.isBool v then lib.boolToString v else toString v;

  # NixOS' type of a setting in a unit: lists add up, anything else must agree.
  unitOption = lib.mkOptionType {
    name = "systemd option";
    merge =
      loc: defs:
      if builtins.any (d: builtins.isList d.value) defs then
        lib.concatMap (d: lib.toList d.value) defs
      else
        lib.options.mergeEqualOption loc defs;
  };

  section = name: settings: "[${name}]\n" + settingLines settings;
  settingLines =
    settings:
    lib.concatStrings (
      lib.mapAttrsToList (
        key: value: lib.concatMapStrings (v: "${key}=${toOption v}\n") (lib.toList value)
      ) settings
    );
}
