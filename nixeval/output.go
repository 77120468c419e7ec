package nixeval

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// noHiveMessage returns the error message for a flake that has neither a hive nor nixosConfigurations.
func noHiveMessage(source Source) string {
	also := ""
	if file := filepath.Join(source.Dir, "hive.nix"); isFile(file) {
		also = "; to use the hive.nix beside it: -f " + file
	}
	return fmt.Sprintf("%s has no output with a hive (%s), and no %s%s", source, strings.Join(hiveOutputs, ", "), configurationsOutput, also)
}

// isMissingOutput reports whether Nix's error says that the flake has no output attr, or that attr is not the set of all outputs
// of the flake.
func isMissingOutput(source Source, err error, attr string) bool {
	var ne *NixError
	if !errors.As(err, &ne) {
		return false
	}
	if attr == rootAttrs[1] && ne.Raw == ourPrefix+noHiveMessage(source) {
		return true
	}
	return strings.Contains(ne.Raw, "does not provide attribute") && (strings.Contains(ne.Raw, "'"+attr+"'") || slices.Contains(rootAttrs, attr))
}
