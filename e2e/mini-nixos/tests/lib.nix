{ lib }:
let
  is = expected: expr: { inherit expr expected; };
  fails = expr: is false (builtins.tryEval (builtins.deepSeq expr expr)).success;
in
{
  # trivial
  pipe = is 6 (lib.pipe 1 [ (x: x + 1) (x: x * 3) ]);
  modOf = is (-1) (lib.mod (-10) 3);
  boolToString = is "true" (lib.boolToString true);
  hex = is "FA" (lib.toHexString 250);
  isFunctionOfFunctor = is true (lib.isFunction { __functor = _: x: x; });
  functionArgs = is { a = true; b = false; } (lib.functionArgs ({ a ? 1, b }: a + b));
  throwIfNot = fails (lib.throwIfNot false "no" 1);
  warnIfNot = is 2 (lib.warnIf false "never" 2);
  assertMsg = fails (lib.assertMsg false "no");
  defaultTo = is 3 (lib.defaultTo 3 null);
  hiPrio = is { priority = -10; } (lib.hiPrio { }).meta;

  # lists
  optional = is [ 1 ] (lib.optional true 1);
  foldr = is "abc-" (lib.foldr (a: b: a + b) "-" [ "a" "b" "c" ]);
  imap0 = is [ "0a" "1b" ] (lib.imap0 (i: v: toString i + v) [ "a" "b" ]);
  imap1 = is [ "1a" "2b" ] (lib.imap1 (i: v: toString i + v) [ "a" "b" ]);
  range = is [ 2 3 4 ] (lib.range 2 4);
  rangeEmpty = is [ ] (lib.range 3 2);
  flatten = is [ 1 2 3 4 ] (lib.flatten [ 1 [ 2 [ 3 ] 4 ] ]);
  unique = is [ 3 2 4 ] (lib.unique [ 3 2 3 4 ]);
  uniqueStrings = is [ "b" "a" ] (lib.unique [ "b" "a" "b" ]);
  sortOn = is [ "a" "bb" "ccc" ] (lib.sortOn lib.stringLength [ "ccc" "a" "bb" ]);
  takeDrop = is [ [ 1 2 ] [ 3 ] [ 1 2 3 ] [ ] ] [
    (lib.take 2 [ 1 2 3 ])
    (lib.drop 2 [ 1 2 3 ])
    (lib.take 9 [ 1 2 3 ])
    (lib.drop 9 [ 1 2 3 ])
  ];
  sublist = is [ 2 3 ] (lib.sublist 1 2 [ 1 2 3 4 ]);
  lastInit = is [ 3 [ 1 2 ] ] [ (lib.last [ 1 2 3 ]) (lib.init [ 1 2 3 ]) ];
  lastOfNone = fails (lib.last [ ]);
  findFirst = is 7 (lib.findFirst (x: x > 5) 0 [ 1 7 9 ]);
  findFirstNone = is "none" (lib.findFirst (_: false) "none" [ 1 7 9 ]);
  findFirstLazy = is 1 (lib.findFirst (x: x == 1) 0 [ 1 (throw "unused") ]);
  count = is 2 (lib.count (x: x > 1) [ 1 2 3 ]);
  remove = is [ 1 4 ] (lib.remove 3 [ 1 3 4 3 ]);
  subtractLists = is [ 1 4 5 ] (lib.subtractLists [ 3 2 ] [ 1 2 3 4 5 3 ]);
  intersectLists = is [ 3 2 ] (lib.intersectLists [ 1 2 3 ] [ 6 3 2 ]);
  zipLists = is [ { fst = 1; snd = "a"; } ] (lib.zipLists [ 1 2 ] [ "a" ]);
  mutuallyExclusive = is false (lib.mutuallyExclusive [ 1 2 ] [ 2 3 ]);

  # attribute sets
  attrByPath = is [ 3 "d" ] [
    (lib.attrByPath [ "a" "b" ] "d" { a.b = 3; })
    (lib.attrByPath [ "a" "b" ] "d" { a = 3; })
  ];
  hasAttrByPath = is [ true false true ] [
    (lib.hasAttrByPath [ "a" "b" ] { a.b = 3; })
    (lib.hasAttrByPath [ "a" "c" ] { a.b = 3; })
    (lib.hasAttrByPath [ ] { })
  ];
  setAttrByPath = is { a.b = 3; } (lib.setAttrByPath [ "a" "b" ] 3);
  getAttrFromPath = is 1 (lib.getAttrFromPath [ "x" "y" ] { x.y = 1; });
  filterAttrs = is { foo = 1; } (lib.filterAttrs (n: _: n == "foo") { foo = 1; bar = 2; });
  filterAttrsRecursive = is { a.b = 1; } (
    lib.filterAttrsRecursive (_: v: v != null) { a = { b = 1; c = null; }; d = null; }
  );
  mapAttrs' = is { fx = "b1"; } (lib.mapAttrs' (n: v: lib.nameValuePair ("f" + n) "b${v}") { x = "1"; });
  mapAttrsToList = is [ "x=a" "y=b" ] (lib.mapAttrsToList (n: v: "${n}=${v}") { x = "a"; y = "b"; });
  mapAttrsRecursive = is { a.b = "a-b-x"; } (
    lib.mapAttrsRecursive (p: v: lib.concatStringsSep "-" (p ++ [ v ])) { a.b = "x"; }
  );
  genAttrs = is { foo = "x_foo"; } (lib.genAttrs [ "foo" ] (n: "x_" + n));
  foldAttrs = is { a = [ 2 3 ]; b = [ 7 ]; } (
    lib.foldAttrs (item: acc: [ item ] ++ acc) [ ] [ { a = 2; } { a = 3; b = 7; } ]
  );
  recursiveUpdate = is { a = { b = 1; c = 2; }; d.e = 1; } (
    lib.recursiveUpdate { a = { b = 1; c = 1; }; d.e = 1; } { a.c = 2; d = { }; }
  );
  recursiveUpdateReplaces = is { a = 1; } (lib.recursiveUpdate { a.b = 1; } { a = 1; });
  zipAttrs = is { a = [ 1 2 ]; } (lib.zipAttrs [ { a = 1; } { a = 2; } ]);
  concatMapAttrs = is { fx = 1; } (lib.concatMapAttrs (n: v: { "f${n}" = v; }) { x = 1; });
  mergeAttrsList = is { a = 1; b = 2; c = 3; } (lib.mergeAttrsList [ { a = 1; } { b = 1; } { b = 2; c = 3; } ]);
  collect = is [ [ 1 ] [ 2 ] ] (lib.collect lib.isList { a = { b = [ 1 ]; }; c = [ 2 ]; });
  attrsToList = is [ { name = "a"; value = 1; } ] (lib.attrsToList { a = 1; });
  optionalAttrs = is { } (lib.optionalAttrs false { a = 1; });
  overrideExisting = is { a = 2; } (lib.overrideExisting { a = 1; } { a = 2; b = 3; });
  isDerivation = is [ true false ] [ (lib.isDerivation { type = "derivation"; }) (lib.isDerivation 1) ];

  # strings
  concatMapStrings = is "fofb" (lib.concatMapStrings (x: "f" + x) [ "o" "b" ]);
  concatMapStringsSep = is "A,B" (lib.concatMapStringsSep "," lib.toUpper [ "a" "b" ]);
  concatLines = is "a\nb\n" (lib.concatLines [ "a" "b" ]);
  hasPrefixes = is [ true false true true true false ] [
    (lib.hasPrefix "fo" "foo")
    (lib.hasPrefix "fooo" "foo")
    (lib.hasSuffix "oo" "foo")
    (lib.hasSuffix "" "foo")
    (lib.hasInfix "a.b" "xa.bx")
    (lib.hasInfix "a.b" "xacbx")
  ];
  removePrefixes = is [ "bar" "foobar" "foo" ] [
    (lib.removePrefix "foo" "foobar")
    (lib.removePrefix "x" "foobar")
    (lib.removeSuffix "bar" "foobar")
  ];
  splitString = is [ "foo" "bar" "" ] (lib.splitString "." "foo.bar.");
  splitStringContext = is true (
    builtins.hasContext (builtins.head (lib.splitString "," "${./samples/once.nix},x"))
  );
  trim = is [ "a b" "" ] [ (lib.trim "  a b\n ") (lib.trim " \n") ];
  upperLower = is [ "AB-1" "ab-1" ] [ (lib.toUpper "aB-1") (lib.toLower "aB-1") ];
  escape = is "\\(foo\\)" (lib.escape [ "(" ")" ] "(foo)");
  escapeShellArg = is [ "abc" "'esc'\\''ape'" "''" "1" ] (map lib.escapeShellArg [ "abc" "esc'ape" "" 1 ]);
  escapeShellArgs = is "one 'two three'" (lib.escapeShellArgs [ "one" "two three" ]);
  escapeNixString = is "\"hello\\\${x}\\n\"" (lib.strings.escapeNixString "hello\${x}\n");
  escapeNixIdentifier = is [ "hello" "\"0abc\"" "\"a.b\"" ] (map lib.strings.escapeNixIdentifier [ "hello" "0abc" "a.b" ]);
  escapeRegex = is "\\[\\^a-z]\\*" (lib.escapeRegex "[^a-z]*");
  fixedWidth = is [ "00005" "  x" ] [ (lib.fixedWidthNumber 5 5) (lib.fixedWidthString 3 " " "x") ];
  toInt = is [ 1337 (-4) 5 ] (map lib.toInt [ "1337" "-4" " 5 " ]);
  toIntOctal = fails (lib.toInt "0123");
  toIntWords = fails (lib.toInt "x");
  versions = is [ true true false "1" "2" "1.2" ] [
    (lib.versionAtLeast "1.1" "1.1")
    (lib.versionOlder "1.1" "1.10")
    (lib.versionOlder "25.05" "24.11")
    (lib.versions.major "1.2.3")
    (lib.versions.minor "1.2.3")
    (lib.versions.majorMinor "1.2.3")
  ];
  names = is [ "youtube-dl" "2016.01.01" ] [
    (lib.getName "youtube-dl-2016.01.01")
    (lib.getVersion "youtube-dl-2016.01.01")
  ];
  sanitize = is [ "foo" "unknown" "foo-bar" "_" ] (
    map lib.strings.sanitizeDerivationName [ "..foo" "" "foo bar" "_" ]
  );
  makeBinPath = is "/root/bin:/usr/bin" (lib.makeBinPath [ "/root" "/usr" ]);
  isStorePath = is [ true false ] (
    map lib.isStorePath [
      "/nix/store/d945ibfx9x185xf04b890y4f9g3cbb63-python-2.7.11"
      "/nix/store/d945ibfx9x185xf04b890y4f9g3cbb63-python-2.7.11/bin"
    ]
  );

  # meta
  getExe = is "/p/bin/prog" (lib.getExe { type = "derivation"; outPath = "/p"; meta.mainProgram = "prog"; });
  getExe' = is "/p/bin/x" (lib.getExe' { type = "derivation"; outPath = "/p"; } "x");
  getBin = is "/b" (lib.getBin { outPath = "/p"; bin = "/b"; });

  # generators
  toINI = is "[bar]\n\n[foo]\nk=v\nyes=true\n" (
    lib.generators.toINI { } { foo = { k = "v"; yes = true; }; bar = { }; }
  );
  toINIDuplicates = is "[s]\nk=1\nk=2\n" (
    lib.generators.toINI { listsAsDuplicateKeys = true; } { s.k = [ 1 2 ]; }
  );
  toKeyValue = is "a=1\nb=x\n" (lib.generators.toKeyValue { } { a = 1; b = "x"; });
  toJSON = is "{\"a\":[1,null]}" (lib.generators.toJSON { } { a = [ 1 null ]; });
  toPretty = is "{\n  a = [\n    1\n    \"x\"\n  ];\n  b = { };\n  \"c.d\" = null;\n}" (
    lib.generators.toPretty { } { a = [ 1 "x" ]; b = { }; "c.d" = null; }
  );
  toPrettyLines = is "''\n  a\n  b\n''" (lib.generators.toPretty { } "a\nb\n");
  toPrettyOne = is "[ 1 <function> <derivation x> ]" (
    lib.generators.toPretty { multiline = false; } [ 1 (x: x) { type = "derivation"; name = "x"; } ]
  );
  toPrettyArgs = is "<function, args: {a, b?}>" (lib.generators.toPretty { } ({ a, b ? 1 }: a));

  # strings with dependencies
  textClosure = is "c\nb\na" (
    lib.textClosureMap lib.id {
      a = lib.stringAfter [ "b" ] "a";
      b = lib.fullDepEntry "b" [ "c" ];
      c = lib.noDepEntry "c";
    } [ "a" "b" "c" ]
  );

  # fixed points
  fix = is 3 (lib.fix (self: { a = 1; b = self.a + 2; })).b;
  extends = is { a = 2; b = 3; } (lib.fix (lib.extends (_: prev: { a = prev.a + 1; }) (self: { a = 1; b = self.a + 1; })));
  composeMany = is { a = 3; } (
    lib.fix (lib.extends (lib.composeManyExtensions [ (_: p: { a = p.a + 1; }) (_: p: { a = p.a + 1; }) ]) (_: { a = 1; }))
  );

  # systems
  elaborate = is [ true true false "aarch64-linux" ] (
    let
      e = lib.systems.elaborate "aarch64-linux";
    in
    [ e.isLinux e.isAarch64 e.isx86_64 e.system ]
  );

  # types describe themselves
  descriptions = is
    [
      "list of string"
      "null or signed integer"
      "attribute set of (null or string)"
      "16 bit unsigned integer; between 0 and 65535 (both inclusive)"
      "one of \"a\", 1"
      "string or list of string"
      "unsigned integer, meaning >=0, or boolean"
      "non-empty (list of string)"
      "absolute path"
      "submodule"
      "open submodule of attribute set of string"
      "function that evaluates to a(n) string"
      "string matching the pattern a+"
      "strings concatenated with \",\""
      "lazy attribute set of raw value"
      "signed integer or string convertible to it"
    ]
    (
      map (t: t.description) (
        with lib.types;
        [
          (listOf str)
          (nullOr int)
          (attrsOf (nullOr str))
          port
          (enum [ "a" 1 ])
          (either str (listOf str))
          (either ints.unsigned bool)
          (nonEmptyListOf str)
          path
          (submodule { })
          (submodule { freeformType = attrsOf str; })
          (functionTo str)
          (strMatching "a+")
          commas
          (lazyAttrsOf raw)
          (coercedTo str lib.toInt int)
        ]
      )
    );
  checks = is [ true false true false true false true false true false ] (
    with lib.types;
    [
      (port.check 80)
      (port.check 70000)
      (nonEmptyStr.check "a")
      (nonEmptyStr.check " ")
      (path.check "/x")
      (path.check "x")
      (pathInStore.check "/nix/store/d945ibfx9x185xf04b890y4f9g3cbb63-x")
      (pathInStore.check "/tmp")
      (singleLineStr.check "a\n")
      (singleLineStr.check "a\nb")
    ]
  );
}
