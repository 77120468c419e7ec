# Just enough of platforms: a system string taken apart.
{ lib }:
rec {
  elaborate =
    arg:
    let
      system = if builtins.isAttrs arg then arg.system else arg;
      parts = lib.splitString "-" system;
      cpu = builtins.head parts;
      kernel = lib.last parts;
    in
    assert lib.assertMsg (builtins.length parts == 2) "Unknown system `${system}'";
    rec {
      inherit system;
      config = "${cpu}-unknown-${kernel}-gnu";
      parsed = { cpu.name = cpu; kernel.name = kernel; };
      isLinux = kernel == "linux";
      isDarwin = kernel == "darwin";
      isx86_64 = cpu == "x86_64";
      isx86_32 = cpu == "i686";
      isx86 = isx86_64 || isx86_32;
      isAarch64 = cpu == "aarch64";
      isAarch = isAarch64;
      isi686 = isx86_32;
      is64bit = isx86_64 || isAarch64;
      is32bit = !is64bit;
      linuxArch = if isAarch64 then "arm64" else cpu;
      go.GOARCH = if isx86_64 then "amd64" else linuxArch;
    };
  equals = a: b: a.system == b.system;
  flakeExposed = [ "x86_64-linux" "aarch64-linux" ];
  doubles.linux = flakeExposed;
  doubles.darwin = [ "x86_64-darwin" "aarch64-darwin" ];
}
