# Option declarations, the ways definitions merge, and how both are shown.
{ lib }:
let
  inherit (builtins) all head isList length;

  valuesOf = map (d: d.value);
  hint = "Use `lib.mkForce value` or `lib.mkDefault value` to change the priority on any of these definitions.";

  # Text that stands for itself where a default or an example is shown.
  literal =
    kind: text:
    lib.throwIfNot (builtins.isString text) "${kind} needs a string" {
      _type = kind;
      inherit text;
    };
in
rec {
  isOption = lib.isType "option";

  # default, defaultText, example, description, type, apply, internal, visible, readOnly
  mkOption = lib.setType "option";

  mkEnableOption =
    what:
    mkOption {
      type = lib.types.bool;
      default = false;
      example = true;
      description = "Whether to enable ${what}.";
    };

  mkPackageOption =
    pkgs: name:
    {
      default ? name,
      extraDescription ? "",
      nullable ? false,
      ...
    }:
    let
      path = lib.toList default;
      shown = lib.concatStringsSep "." ([ "pkgs" ] ++ path);
      type = if nullable then lib.types.nullOr lib.types.package else lib.types.package;
      description = "The ${lib.last (lib.toList name)} package to use.";
      known =
        if default == null then
          lib.optionalAttrs nullable { inherit default; }
        else
          {
            default = lib.attrByPath path (throw "there is no package ${shown}") pkgs;
            defaultText = literalExpression shown;
          };
    in
    mkOption (
      known
      // {
        inherit type;
        description =
          description + lib.optionalString (extraDescription != "") " ${extraDescription}";
      }
    );

  # --- merging ---

  getFiles = map (d: d.file);

  # The default for types without their own way to merge.
  mergeDefaultOption =
    loc: defs:
    let
      values = valuesOf defs;
      are = predicate: all predicate values;
    in
    if length values == 1 then
      head values
    else if are lib.isFunction then
      x: mergeDefaultOption loc (map (d: d // { value = d.value x; }) defs)
    else if are isList then
      lib.concatLists values
    else if are builtins.isAttrs then
      lib.mergeAttrsList values
    else if are builtins.isBool then
      lib.elem true values
    else if are builtins.isString then
      lib.concatStrings values
    else
      mergeEqualOption loc defs;

  mergeOneOption = mergeUniqueOption { message = hint; };
  mergeUniqueOption =
    {
      message,
      merge ? _: defs: (head defs).value,
    }:
    loc: defs:
    if length defs > 1 then
      throw "The option `${showOption loc}' is defined multiple times while it's expected to be unique. ${message}${showDefs defs}"
    else
      merge loc defs;

  mergeEqualOption =
    loc: defs:
    let
      first = head defs;
      other = lib.findFirst (d: d.value != first.value) null defs;
    in
    if length defs == 1 || other == null then
      first.value
    else
      throw "The option `${showOption loc}' has conflicting definition values:${showDefs [ first other ]}\n${hint}";

  # --- showing ---

  literalExpression = literal "literalExpression";
  literalMD = literal "literalMD";

  showOption =
    let
      show =
        part:
        # Placeholders of elements stay as they are.
        if part == "*" || builtins.match "<.*>" part != null then
          part
        else
          lib.strings.escapeNixIdentifier part;
    in
    lib.concatMapStringsSep "." show;

  showFiles = lib.concatMapStringsSep " and " (f: "`${f}'");

  showDefs =
    let
      print = lib.generators.print { multiline = true; depth = 10; } "";
      show =
        d:
        let
          # A value that cannot be printed must not hide the error being reported.
          printed = builtins.tryEval (print d.value);
          lines = lib.splitString "\n" printed.value;
          some = lib.take 5 lines ++ lib.optional (length lines > 5) "...";
        in
        "\n- In `${d.file}'"
        + lib.optionalString printed.success (
          if length lines == 1 then ": ${printed.value}" else ":${lib.concatMapStrings (l: "\n    ${l}") some}"
        );
    in
    lib.concatMapStrings show;

  unknownModule = "<unknown-file>";

  # --- lists of options, which an option reference is made of ---

  optionAttrSetToDocList =
    options: lib.concatMap describe (lib.collect isOption options);

  describe =
    o:
    let
      visible = o.visible or true;
      below = o.type.getSubOptions o.loc;
      shown = v: if v ? _type && v ? text then v else literalExpression (lib.generators.toPretty { } v);
      # An option without a default has its type's empty value, if there is one.
      default = lib.findFirst (v: v ? value) { } [
        (lib.optionalAttrs (o ? defaultText) { value = o.defaultText; })
        (lib.optionalAttrs (o ? default) { value = o.default; })
        (lib.optionalAttrs (o.type.getSubModules == null) o.type.emptyValue)
      ];
    in
    [
      (
        {
          inherit (o) loc;
          name = showOption o.loc;
          type = o.type.description;
          description = o.description or null;
          declarations = lib.remove unknownModule o.declarations;
          internal = o.internal or false;
          readOnly = o.readOnly or false;
          visible = visible == true || visible == "shallow";
        }
        // lib.mapAttrs (_: shown) (
          lib.optionalAttrs (o ? example) { inherit (o) example; }
          // lib.optionalAttrs (default ? value) { default = default.value; }
        )
      )
    ]
    ++ lib.optionals (visible == true || visible == "transparent") (optionAttrSetToDocList below);
}
