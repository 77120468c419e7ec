package nixeval

import (
	"encoding/json"
	"strings"
)

var nixEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "${", `\${`, "\n", `\n`, "\r", `\r`, "\t", `\t`)

// nixString returns s as a Nix string literal. s must not contain NUL, which no string of Nix and no argument of a program contains.
func nixString(s string) string { return `"` + nixEscapes.Replace(s) + `"` }

// EncodeJSON returns a Nix expression for a value. If encoding/json cannot encode the value, Nix fails to evaluate the expression.
func EncodeJSON(v any) string {
	data, _ := json.Marshal(v)
	return "(builtins.fromJSON " + nixString(string(data)) + ")"
}

// nixPath returns a Nix expression for an absolute path. The expression contains a string, because
// Nix's syntax for paths allows neither spaces nor quotes.
func nixPath(abs string) string { return "(/. + " + nixString(abs) + ")" }
