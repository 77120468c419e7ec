# Short ways to declare an option, which nearly all modules here do.
{ lib }:
{
  option =
    type: default: description:
    lib.mkOption { inherit type default description; };
  # Without a default: reading it fails until somebody sets it.
  required = type: description: lib.mkOption { inherit type description; };
}
