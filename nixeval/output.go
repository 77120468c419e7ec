package nixeval

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// flakeOutput is the output of a flake that nixbench evaluates. It is the output that the user has selected, or the first in
// flakeAttrs that is not known to be missing.
type flakeOutput struct {
	mu   sync.Mutex
	attr string
}

// current returns the attribute of the flake that is evaluated now, and whether this attribute is the last in flakeAttrs.
func (o *flakeOutput) current() (attr string, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.attr == "" {
		o.attr = flakeAttrs[0]
	}
	return o.attr, o.attr == flakeAttrs[len(flakeAttrs)-1]
}

// advance selects the output that is tried next, because the output `after` is missing. If another evaluation has done this
// already, advance does nothing.
func (o *flakeOutput) advance(after string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(flakeAttrs, after); o.attr == after && i+1 < len(flakeAttrs) {
		o.attr = flakeAttrs[i+1]
	}
}

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
