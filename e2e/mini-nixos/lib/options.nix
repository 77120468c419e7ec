# Option declarations, the ways definitions merge, and how both are printed.
{ lib }:
let
  inherit (builtins)
    all
    head
    isList
    length
    ;

  prioritySuggestion = "Use `lib.mkForce value` or `lib.mkDefault value` to change the priority on any of these definitions.";
in
rec {
  isOption = v: v._type or null == "option";

  mkOption =
    {
      default ? null,
      defaultText ? null,
      example ? null,
      description ? null,
      relatedPackages ? null,
      type ? null,
      apply ? null,
      internal ? null,
      visible ? null,
      readOnly ? null,
    }@attrs:
    attrs // { _type = "option"; };

  mkEnableOption =
    name:
    mkOption {
      type = lib.types.bool;
      default = false;
      example = true;
      description = "Whether to enable ${name}.";
    };

  mkPackageOption =
    pkgs: name:
    {
      nullable ? false,
      default ? name,
      example ? null,
      extraDescription ? "",
      pkgsText ? "pkgs",
    }:
    let
      path = lib.toList default;
      shown = lib.showAttrPath path;
      title = if isList name then lib.last name else name;
    in
    mkOption (
      (
        if default != null then
          {
            default = lib.attrByPath path (throw "${shown} cannot be found in ${pkgsText}") pkgs;
            defaultText = literalExpression "${pkgsText}.${shown}";
          }
        else
          lib.optionalAttrs nullable { default = null; }
      )
      // {
        type = if nullable then lib.types.nullOr lib.types.package else lib.types.package;
        description =
          "The ${title} package to use."
          + lib.optionalString (extraDescription != "") " ${extraDescription}";
      }
      // lib.optionalAttrs (example != null) {
        example = literalExpression (
          if isList example then "${pkgsText}.${lib.showAttrPath example}" else example
        );
      }
    );

  mkSinkUndeclaredOptions =
    attrs:
    mkOption (
      {
        internal = true;
        visible = false;
        default = false;
        description = "Sink for option definitions.";
        type = lib.mkOptionType {
          name = "sink";
          merge = _loc: _defs: false;
        };
        apply = _: throw "Option value is not readable because the option is not declared.";
      }
      // attrs
    );

  getValues = map (d: d.value);
  getFiles = map (d: d.file);

  mergeDefaultOption =
    loc: defs:
    let
      values = getValues defs;
    in
    if length values == 1 then
      head values
    else if all lib.isFunction values then
      x: mergeDefaultOption loc (map (f: f x) values)
    else if all isList values then
      lib.concatLists values
    else if all builtins.isAttrs values then
      lib.mergeAttrsList values
    else if all builtins.isBool values then
      builtins.any lib.id values
    else if all builtins.isString values then
      lib.concatStrings values
    else if all builtins.isInt values && all (v: v == head values) values then
      head values
    else
      throw "Cannot merge definitions of `${showOption loc}'. Definition values:${showDefs defs}";

  mergeOneOption = mergeUniqueOption { message = ""; };

  mergeUniqueOption =
    {
      message,
      merge ? _loc: defs: (head defs).value,
    }:
    loc: defs:
    if length defs == 1 then
      merge loc defs
    else
      throw "The option `${showOption loc}' is defined multiple times while it's expected to be unique.\n${message}\nDefinition values:${showDefs defs}\n${prioritySuggestion}";

  mergeEqualOption =
    loc: defs:
    let
      first = head defs;
      check =
        _: def:
        if def.value == first.value then
          null
        else
          throw "The option `${showOption loc}' has conflicting definition values:${
            showDefs [
              first
              def
            ]
          }\n${prioritySuggestion}";
    in
    builtins.seq (builtins.foldl' check null (builtins.tail defs)) first.value;

  literalExpression =
    text:
    lib.throwIfNot (builtins.isString text) "literalExpression expects a string." {
      _type = "literalExpression";
      inherit text;
    };
  literalMD =
    text:
    lib.throwIfNot (builtins.isString text) "literalMD expects a string." {
      _type = "literalMD";
      inherit text;
    };
  literalCode = language: text: literalMD "```${language}\n${text}\n```\n";
  mdDoc = text: text;

  renderOptionValue =
    v:
    if v ? _type && v ? text then
      v
    else
      literalExpression (
        lib.generators.toPretty {
          multiline = true;
          allowPrettyValues = true;
        } v
      );

  # One entry per option, sub-options included: what a manual is made of.
  optionAttrSetToDocList = optionAttrSetToDocList' [ ];
  optionAttrSetToDocList' =
    _: options:
    builtins.concatMap (
      opt:
      let
        visible = opt.visible or true;
        sub = opt.type.getSubOptions opt.loc;
        fallback = opt.type.emptyValue or { };
        hasDefault =
          opt ? defaultText
          || opt ? default
          || (fallback ? value && opt.type.getSubModules or null == null);
      in
      [
        (
          {
            inherit (opt) loc;
            name = showOption opt.loc;
            description = opt.description or null;
            declarations = builtins.filter (f: f != unknownModule) opt.declarations;
            internal = opt.internal or false;
            visible = if builtins.isBool visible then visible else visible == "shallow";
            readOnly = opt.readOnly or false;
            type = opt.type.description or "unspecified";
          }
          // lib.optionalAttrs (opt ? example) { example = renderOptionValue opt.example; }
          // lib.optionalAttrs hasDefault {
            default = renderOptionValue (opt.defaultText or opt.default or fallback.value);
          }
          // lib.optionalAttrs (opt.relatedPackages or null != null) { inherit (opt) relatedPackages; }
        )
      ]
      ++ lib.optionals (
        (if builtins.isBool visible then visible else visible == "transparent") && sub != { }
      ) (optionAttrSetToDocList' opt.loc sub)
    ) (lib.collect isOption options);

  showOption =
    parts:
    lib.concatMapStringsSep "." (
      part:
      if part == "*" || builtins.match "<(.*)>" part != null then
        part
      else
        lib.strings.escapeNixIdentifier part
    ) parts;

  showFiles = lib.concatMapStringsSep " and " (f: "`${f}'");

  showDefs = lib.concatMapStrings (
    def:
    let
      # A value that cannot be printed must not hide the error being reported.
      shown = builtins.tryEval (
        lib.generators.toPretty { } (
          lib.generators.withRecursion {
            depthLimit = 10;
            throwOnDepthLimit = false;
          } def.value
        )
      );
      lines = lib.splitString "\n" shown.value;
      text = lib.concatStringsSep "\n    " (
        lib.take 5 lines ++ lib.optional (length lines > 5) "..."
      );
    in
    "\n- In `${def.file}'"
    + lib.optionalString shown.success (
      (if length lines > 1 then ":\n    " else ": ") + text
    )
  );

  showOptionWithDefLocs = opt: ''
    ${showOption opt.loc}, with values defined in:
    ${lib.concatMapStringsSep "\n" (f: "  - ${f}") opt.files}
  '';

  unknownModule = "<unknown-file>";
}
