# Strings.
{ lib }:
let
  inherit (builtins) concatStringsSep replaceStrings stringLength substring;

  lower = lib.stringToCharacters "abcdefghijklmnopqrstuvwxyz";
  upper = lib.stringToCharacters "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

  # Words that Nix reads as keywords, and so must be quoted as attribute names.
  keywords = [ "assert" "else" "if" "in" "inherit" "let" "or" "rec" "then" "with" ];

  versionPart = i: v: builtins.elemAt (builtins.splitVersion v) i;

  # A package says its name and version itself, or they are taken from its name.
  nameOrVersion =
    own: parsed: p:
    p.${own} or (builtins.parseDrvName (p.name or p)).${parsed};
in
rec {
  inherit (builtins)
    fromJSON isString match replaceStrings split splitVersion storeDir stringLength substring toJSON
    typeOf unsafeDiscardStringContext compareVersions concatStringsSep isPath
    ;

  concatStrings = concatStringsSep "";
  concatMapStrings = f: xs: concatStrings (map f xs);
  concatMapStringsSep =
    sep: f: xs:
    concatStringsSep sep (map f xs);
  concatMapAttrsStringSep =
    sep: f: set:
    concatStringsSep sep (lib.mapAttrsToList f set);
  concatLines = concatMapStrings (s: s + "\n");
  optionalString = cond: s: if cond then s else "";

  stringToCharacters = s: builtins.genList (i: substring i 1 s) (stringLength s);

  hasPrefix = prefix: s: substring 0 (stringLength prefix) s == prefix;
  hasSuffix =
    suffix: s:
    let
      extra = stringLength s - stringLength suffix;
    in
    extra >= 0 && substring extra (-1) s == suffix;
  hasInfix = infix: s: builtins.length (builtins.split (escapeRegex infix) "${s}") > 1;
  removePrefix =
    prefix: s: if hasPrefix prefix s then substring (stringLength prefix) (-1) s else s;
  removeSuffix =
    suffix: s:
    if hasSuffix suffix s then substring 0 (stringLength s - stringLength suffix) s else s;
  splitString =
    sep: s:
    # builtins.split forgets which store paths its string refers to.
    map (part: substring 0 0 (toString s) + part) (
      builtins.filter builtins.isString (builtins.split (escapeRegex (toString sep)) (toString s))
    );
  trim =
    s:
    let
      found = builtins.match "[ \t\r\n]*(.*[^ \t\r\n])[ \t\r\n]*" s;
    in
    lib.optionalString (found != null) (builtins.head found);

  toLower = replaceStrings upper lower;
  toUpper = replaceStrings lower upper;
  escape = chars: replaceStrings chars (map (c: "\\" + c) chars);
  escapeRegex = escape (stringToCharacters "$()*+.?[\\^{|");
  escapeShellArg =
    arg:
    let
      s = toString arg;
    in
    if builtins.match "[[:alnum:],._+:@%/-]+" s != null then
      s
    else
      "'${replaceStrings [ "'" ] [ "'\\''" ] s}'";
  escapeShellArgs = xs: toString (map escapeShellArg xs);
  escapeNixString = s: escape [ "$" ] (builtins.toJSON s);
  escapeNixIdentifier =
    s:
    if builtins.match "[a-zA-Z_][a-zA-Z0-9_'-]*" s != null && !builtins.elem s keywords then
      s
    else
      escapeNixString s;
  isStringLike = x: builtins.isString x || builtins.isPath x || x ? outPath || x ? __toString;
  isStorePath = v: isStringLike v && dirOf (toString v) == builtins.storeDir;

  # A leading zero could mean octal, and is refused.
  toInt =
    s:
    let
      digits = builtins.match "[[:space:]]*(0|-?[1-9][[:digit:]]*)[[:space:]]*" s;
    in
    if digits == null then
      throw "toInt: ${escapeNixString s} is not a decimal number"
    else
      builtins.fromJSON (builtins.head digits);
  fixedWidthString =
    width: filler: s:
    if stringLength s < width then fixedWidthString width filler (filler + s) else s;
  fixedWidthNumber = width: number: fixedWidthString width "0" (toString number);

  fileContents = file: removeSuffix "\n" (builtins.readFile file);

  versionOlder = a: b: builtins.compareVersions b a == 1;
  versionAtLeast = a: b: !versionOlder a b;
  getName = nameOrVersion "pname" "name";
  getVersion = nameOrVersion "version" "version";
  sanitizeDerivationName =
    s:
    let
      plain = builtins.unsafeDiscardStringContext s;
      clean = concatMapStrings (part: if builtins.isList part then "-" else part) (
        builtins.split "[^[:alnum:]+._?=-]+" plain
      );
      undotted = builtins.head (builtins.match "\\.*(.*)" clean);
      n = stringLength undotted;
    in
    if builtins.match "[[:alnum:]+_?=-][[:alnum:]+._?=-]*" plain != null && stringLength plain <= 207 then
      plain
    else if n == 0 then
      "unknown"
    else
      substring (lib.max (n - 207) 0) (-1) undotted;

  # --- search paths ---

  makeSearchPath = folder: concatMapStringsSep ":" (p: "${p}/${folder}");
  makeSearchPathOutput =
    output: folder: packages:
    makeSearchPath folder (map (lib.getOutput output) packages);
  makeBinPath = makeSearchPathOutput "bin" "bin";

  # --- versions ---

  versions = {
    inherit (builtins) splitVersion;
    major = v: versionPart 0 v;
    minor = v: versionPart 1 v;
    majorMinor = v: versionPart 0 v + "." + versionPart 1 v;
  };

  # --- pieces of text that say which pieces come before them ---

  # How NixOS writes its activation script: depth first, each piece once.
  textClosureMap =
    f: pieces: names:
    let
      visit =
        done: name:
        if done.seen ? ${name} then
          done
        else
          let
            before = lib.foldl' visit (done // { seen = done.seen // { ${name} = true; }; }) pieces.${name}.deps;
          in
          before // { texts = before.texts ++ [ (f pieces.${name}.text) ]; };
      none = {
        seen = { };
        texts = [ ];
      };
    in
    concatStringsSep "\n" (lib.foldl' visit none names).texts;
  stringAfter = lib.flip fullDepEntry;
  fullDepEntry = text: deps: { inherit deps text; };
  noDepEntry = stringAfter [ ];
}
