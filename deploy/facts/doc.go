// Package facts reads and writes runtime.json: the facts about a cluster that are known only at run time
// and may be public. Evaluation passes them to every module as the argument `runtime`, so all of them can
// be copied to the world-readable store. They contain the names and paths of tokens, never their values.
package facts
