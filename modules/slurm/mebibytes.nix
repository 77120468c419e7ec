# Converts a size such as 512M or 4G to a number of MiB.
size:
let
  parts = builtins.match "([0-9]+)([KMGT])" size;
  units = {
    K = 1.0 / 1024;
    M = 1;
    G = 1024;
    T = 1024 * 1024;
  };
in
builtins.floor (builtins.fromJSON (builtins.head parts) * units.${builtins.elemAt parts 1})
