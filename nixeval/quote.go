package nixeval

import (
	"encoding/json"
	"fmt"
	"strings"
)

var nixEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "${", `\${`, "\n", `\n`, "\r", `\r`, "\t", `\t`)

// nixString returns s as a Nix string literal. It fails if s contains NUL, which Nix strings cannot
// contain.
func nixString(s string) (string, error) {
	if strings.ContainsRune(s, 0) {
		return "", fmt.Errorf("%q holds a NUL byte, which Nix cannot represent", s)
	}
	return `"` + nixEscapes.Replace(s) + `"`, nil
}

// EncodeJSON returns a Nix expression for a value that encoding/json can encode.
func EncodeJSON(v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	text, err := nixString(string(data))
	if err != nil {
		return "", err
	}
	return "(builtins.fromJSON " + text + ")", nil
}

// nixPath returns a Nix expression for an absolute path. The expression contains a string, because
// Nix's syntax for paths allows neither spaces nor quotes.
func nixPath(abs string) (string, error) {
	text, err := nixString(abs)
	if err != nil {
		return "", err
	}
	return "(/. + " + text + ")", nil
}
