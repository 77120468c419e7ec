// Package facts reads and writes runtime.json: the facts about a cluster that are known only at run time and
// may be public. The evaluation passes the facts to every module as the argument `runtime`, so every value may
// be copied to the world-readable store. The facts contain the names and paths of tokens, never their values.
package facts
