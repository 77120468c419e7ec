# Arithmetic with IPv4 addresses and networks.
{ lib }:
let
  pow2 = n: if n == 0 then 1 else 2 * pow2 (n - 1);

  toInt = address: lib.foldl' (n: part: n * 256 + lib.toInt part) 0 (lib.splitString "." address);

  toAddress =
    n:
    let
      div = a: b: a / b;
      part = shift: toString (lib.mod (div n shift) 256);
    in
    lib.concatMapStringsSep "." part [
      16777216
      65536
      256
      1
    ];
in
rec {
  inherit pow2;

  # A regular expression for a number from 0 to 255. Leading zeros are not allowed, because shells read such numbers as
  # octal.
  octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  addressRegex = "(${octet}\\.){3}${octet}";
  cidrRegex = "${addressRegex}/(3[0-2]|[12]?[0-9])";

  # Returns { first; prefix; size; } for a network such as "10.244.0.0/16". `first` is its first address as a number.
  parse =
    cidr:
    let
      parts = lib.splitString "/" cidr;
      prefix = lib.toInt (lib.last parts);
      size = pow2 (32 - prefix);
      address = toInt (lib.head parts);
    in
    {
      inherit prefix size;
      first = address - lib.mod address size;
    };

  # Returns the n-th address of a network as text. The address of the network has the number 0.
  nth = cidr: n: toAddress ((parse cidr).first + n);

  # Whether two networks have a common address.
  overlap =
    a: b:
    let
      x = parse a;
      y = parse b;
    in
    x.first < y.first + y.size && y.first < x.first + x.size;
}
