# Strings.
{ lib }:
let
  inherit (builtins)
    concatStringsSep
    replaceStrings
    stringLength
    substring
    ;

  lower = lib.stringToCharacters "abcdefghijklmnopqrstuvwxyz";
  upper = lib.stringToCharacters "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

  # Words that Nix reads as keywords, and so must be quoted as attribute names.
  keywords = [
    "assert"
    "else"
    "if"
    "in"
    "inherit"
    "let"
    "or"
    "rec"
    "then"
    "with"
  ];
in
rec {
  inherit (builtins)
    compareVersions
    concatStringsSep
    elem
    elemAt
    filter
    fromJSON
    head
    isInt
    isList
    isPath
    isString
    match
    parseDrvName
    readFile
    replaceStrings
    split
    storeDir
    stringLength
    substring
    tail
    toJSON
    typeOf
    unsafeDiscardStringContext
    ;

  join = concatStringsSep;
  replicate = n: s: concatStrings (lib.lists.replicate n s);
  concatStrings = concatStringsSep "";
  concatMapStrings = f: xs: concatStrings (map f xs);
  concatImapStrings = f: xs: concatStrings (lib.imap1 f xs);
  concatMapStringsSep =
    sep: f: xs:
    concatStringsSep sep (map f xs);
  concatImapStringsSep =
    sep: f: xs:
    concatStringsSep sep (lib.imap1 f xs);
  concatMapAttrsStringSep =
    sep: f: set:
    concatStringsSep sep (lib.mapAttrsToList f set);
  concatLines = concatMapStrings (s: s + "\n");
  intersperse =
    sep: xs:
    if xs == [ ] then
      [ ]
    else
      builtins.tail (
        builtins.concatMap (x: [
          sep
          x
        ]) xs
      );
  optionalString = cond: s: if cond then s else "";

  stringToCharacters = s: builtins.genList (i: substring i 1 s) (stringLength s);
  stringAsChars = f: s: concatMapStrings f (stringToCharacters s);

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
  # builtins.split forgets which store paths its string refers to.
  addContextFrom = src: target: substring 0 0 src + target;
  splitString =
    sep: s:
    map (addContextFrom s) (
      builtins.filter builtins.isString (builtins.split (escapeRegex (toString sep)) (toString s))
    );
  splitStringBy =
    predicate: keepSplit: s:
    let
      step =
        acc: char:
        let
          cut = acc.previous != null && predicate acc.previous char;
        in
        {
          previous = char;
          done = if cut then acc.done ++ [ acc.word ] else acc.done;
          word = (if cut then "" else acc.word) + (if cut && !keepSplit then "" else char);
        };
      end = builtins.foldl' step {
        previous = null;
        done = [ ];
        word = "";
      } (stringToCharacters s);
    in
    end.done ++ [ end.word ];

  trim = trimWith {
    start = true;
    end = true;
  };
  trimWith =
    {
      start ? false,
      end ? false,
    }:
    s:
    let
      space = " \t\r\n";
      pattern =
        if start && end then
          "[${space}]*(.*[^${space}])[${space}]*"
        else if start then
          "[${space}]*(.*)"
        else
          "(.*[^${space}])[${space}]*";
      found = builtins.match pattern s;
    in
    if !(start || end) then
      s
    else if found == null then
      ""
    else
      builtins.head found;

  toLower = replaceStrings upper lower;
  toUpper = replaceStrings lower upper;
  toSentenceCase = s: toUpper (substring 0 1 s) + toLower (substring 1 (-1) s);

  replaceString = from: to: replaceStrings [ from ] [ to ];
  escape = chars: replaceStrings chars (map (c: "\\" + c) chars);
  escapeRegex = escape (stringToCharacters "\\[{()^$?*+|.");
  escapeShellArg =
    arg:
    let
      s = toString arg;
    in
    if builtins.match "[[:alnum:],._+:@%/-]+" s != null then
      s
    else
      "'${replaceStrings [ "'" ] [ "'\\''" ] s}'";
  escapeShellArgs = concatMapStringsSep " " escapeShellArg;
  isValidPosixName = name: builtins.match "[a-zA-Z_][a-zA-Z0-9_]*" name != null;
  toShellVar =
    name: value:
    lib.throwIfNot (isValidPosixName name)
      "toShellVar: ${name} is not a valid shell variable name"
      (
        if builtins.isAttrs value && !isStringLike value then
          "declare -A ${name}=(${
            concatStringsSep " " (
              lib.mapAttrsToList (n: v: "[${escapeShellArg n}]=${escapeShellArg v}") value
            )
          })"
        else if builtins.isList value then
          "declare -a ${name}=(${escapeShellArgs value})"
        else
          "${name}=${escapeShellArg value}"
      );
  toShellVars = vars: concatStringsSep "\n" (lib.mapAttrsToList toShellVar vars);
  escapeNixString = s: escape [ "$" ] (builtins.toJSON s);
  escapeNixIdentifier =
    s:
    if builtins.match "[a-zA-Z_][a-zA-Z0-9_'-]*" s != null && !builtins.elem s keywords then
      s
    else
      escapeNixString s;
  escapeXML =
    replaceStrings
      [
        "\""
        "'"
        "<"
        ">"
        "&"
      ]
      [
        "&quot;"
        "&apos;"
        "&lt;"
        "&gt;"
        "&amp;"
      ];
  isConvertibleWithToString =
    x:
    isStringLike x
    || builtins.elem (builtins.typeOf x) [
      "null"
      "int"
      "float"
      "bool"
    ]
    || (builtins.isList x && builtins.all isConvertibleWithToString x);
  isStringLike = x: builtins.isString x || builtins.isPath x || x ? outPath || x ? __toString;
  isStorePath =
    x:
    if isStringLike x then
      let
        s = toString x;
      in
      substring 0 1 s == "/" && dirOf s == builtins.storeDir
    else
      false;

  toInt =
    s:
    let
      found = builtins.match "[[:space:]]*(-?[[:digit:]]+)[[:space:]]*" s;
      digits = builtins.head found;
    in
    if found == null then
      throw "toInt: Could not convert ${escapeNixString s} to int."
    else if builtins.match "0[[:digit:]]+" digits != null then
      throw "toInt: Ambiguity in interpretation of ${escapeNixString s} between octal and zero padded integer."
    else
      builtins.fromJSON digits;
  toIntBase10 =
    s:
    let
      found = builtins.match "[[:space:]]*0*(-?[[:digit:]]+)[[:space:]]*" s;
    in
    if found == null then
      throw "toIntBase10: Could not convert ${escapeNixString s} to int."
    else
      builtins.fromJSON (builtins.head found);
  fixedWidthString =
    width: filler: s:
    let
      missing = width - stringLength s;
    in
    assert lib.assertMsg (missing >= 0)
      "fixedWidthString: requested string length (${toString width}) must not be shorter than actual length (${toString (stringLength s)})";
    replicate missing filler + s;
  fixedWidthNumber = width: n: fixedWidthString width "0" (toString n);
  floatToString =
    f:
    let
      precise = builtins.toJSON f;
    in
    if builtins.fromJSON precise == f then precise else toString f;

  fileContents = file: removeSuffix "\n" (builtins.readFile file);

  versionOlder = a: b: builtins.compareVersions b a == 1;
  versionAtLeast = a: b: !versionOlder a b;
  getName = x: if builtins.isString x then (builtins.parseDrvName x).name else x.pname or (builtins.parseDrvName x.name).name;
  getVersion =
    x: if builtins.isString x then (builtins.parseDrvName x).version else x.version or (builtins.parseDrvName x.name).version;
  nameFromURL =
    url: sep: builtins.head (splitString sep (lib.last (splitString "/" url)));
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

  makeSearchPath =
    sub: paths:
    concatStringsSep ":" (map (p: "${p}/${sub}") (builtins.filter (p: p != null) paths));
  makeSearchPathOutput =
    output: sub: pkgs:
    makeSearchPath sub (map (lib.getOutput output) pkgs);
  makeBinPath = makeSearchPathOutput "bin" "bin";
  makeLibraryPath = makeSearchPathOutput "lib" "lib";
  enableFeature = flag: feature: "--${if flag then "enable" else "disable"}-${feature}";
  charToInt =
    let
      printable = stringToCharacters (
        " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"
      );
      table = builtins.listToAttrs (
        lib.imap0 (i: c: {
          name = c;
          value = i + 32;
        }) printable
      );
    in
    c: table.${c};
}
