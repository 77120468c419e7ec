# Fixed points and the overlays that compose them.
{ lib }:
rec {
  fix =
    f:
    let
      x = f x;
    in
    x;
  extends =
    overlay: f: final:
    let
      prev = f final;
    in
    prev // overlay final prev;
  composeExtensions =
    f: g: final: prev:
    let
      first = f final prev;
      prev' = prev // first;
    in
    first // g final prev';
  composeManyExtensions = lib.foldr composeExtensions (_final: _prev: { });
  makeExtensible = makeExtensibleWithCustomName "extend";
  makeExtensibleWithCustomName =
    name: rattrs:
    fix (
      self:
      rattrs self
      // {
        ${name} = f: makeExtensibleWithCustomName name (extends f rattrs);
      }
    );
}
