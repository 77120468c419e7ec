# Looking at values while they are evaluated.
{ lib }:
rec {
  inherit (builtins) addErrorContext trace unsafeGetAttrPos;

  traceIf =
    pred: msg: x:
    if pred then trace msg x else x;
  traceValFn = f: x: trace (f x) x;
  traceVal = traceValFn lib.id;
  traceSeq = x: y: trace (builtins.deepSeq x x) y;
  traceValSeqFn = f: x: traceValFn f (builtins.deepSeq x x);
  traceValSeq = traceValSeqFn lib.id;

  # The failures among { expr expected } sets.
  runTests =
    tests:
    lib.concatLists (
      lib.mapAttrsToList (
        name: test:
        lib.optional (test.expr != test.expected) {
          inherit name;
          inherit (test) expected;
          result = test.expr;
        }
      ) tests
    );
}
