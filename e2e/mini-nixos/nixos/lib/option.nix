# Short functions to declare options, for the modules here.
{ lib }:
{
  option =
    type: default: description:
    lib.mkOption { inherit type default description; };
  # Without a default: reading the option fails if no module defines it.
  required = type: description: lib.mkOption { inherit type description; };
}
