# Named pieces of text that say which pieces come before them. NixOS writes its
# activation script this way.
{ lib }:
rec {
  # Depth-first, in name order where nothing else decides.
  textClosureList =
    predefined: arg:
    let
      visit =
        state: entry:
        if builtins.isAttrs entry then
          let
            after = builtins.foldl' visit state entry.deps;
          in
          after // { texts = after.texts ++ [ entry.text ]; }
        else if state.done ? ${entry} then
          state
        else
          visit (state // { done = state.done // { ${entry} = true; }; }) predefined.${entry};
    in
    (builtins.foldl' visit {
      done = { };
      texts = [ ];
    } arg).texts;

  textClosureMap =
    f: predefined: names:
    lib.concatStringsSep "\n" (map f (textClosureList predefined names));

  noDepEntry = text: {
    inherit text;
    deps = [ ];
  };
  fullDepEntry = text: deps: { inherit text deps; };
  packEntry = deps: {
    inherit deps;
    text = "";
  };
  stringAfter = deps: text: { inherit text deps; };
}
