# For `assert assertMsg cond "why"; ...`.
{ ... }:
rec {
  # True, or an error whose text is the message.
  assertMsg = pred: msg: pred || throw msg;

  assertOneOf =
    name: val: xs:
    assertMsg (builtins.elem val xs)
      "${name} must be one of ${builtins.toJSON xs}, but is: ${builtins.toJSON val}";
}
