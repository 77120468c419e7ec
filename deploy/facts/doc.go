// Package facts is what is known of a cluster only at run time and may be public:
// runtime.json. Evaluation sees it as the argument `runtime` of every module, so
// everything in it can end up in the world-readable store: it names tokens and
// their place on the node, never what they say.
package facts
