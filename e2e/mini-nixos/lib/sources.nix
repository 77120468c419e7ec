# Source trees.
{ lib }:
{
  cleanSourceFilter =
    name: type:
    let
      base = baseNameOf (toString name);
    in
    !(
      (type == "directory" && builtins.elem base [ ".git" ".svn" "CVS" ".hg" ])
      || lib.hasSuffix "~" base
      || builtins.match ''^\.sw[a-z]$|^\..*\.sw[a-z]$'' base != null
      || lib.hasSuffix ".o" base
      || lib.hasSuffix ".so" base
      || (type == "symlink" && lib.hasPrefix "result" base)
      || type == "unknown"
    );
  cleanSource =
    src:
    builtins.path {
      path = src;
      name = "source";
      filter = lib.cleanSourceFilter;
    };
  pathType = path: (builtins.readDir (dirOf path)).${baseNameOf path};
  pathIsDirectory =
    path: builtins.pathExists path && builtins.pathExists (toString path + "/.");
  sourceByRegex =
    src: regexes:
    builtins.path {
      path = src;
      name = "source";
      filter =
        path: _type:
        let
          relative = lib.removePrefix (toString src + "/") (toString path);
        in
        builtins.any (re: builtins.match re relative != null) regexes;
    };
}
