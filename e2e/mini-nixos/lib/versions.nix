# Version numbers.
{ ... }:
rec {
  inherit (builtins) splitVersion;
  major = v: builtins.elemAt (splitVersion v) 0;
  minor = v: builtins.elemAt (splitVersion v) 1;
  patch = v: builtins.elemAt (splitVersion v) 2;
  majorMinor =
    v: builtins.concatStringsSep "." (map (builtins.elemAt (splitVersion v)) [ 0 1 ]);
}
