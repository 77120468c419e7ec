package nixeval

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/failure"
)

// Set is one argument --set PATH=VALUE. nixbench's Nix code parses VALUE, because the type of the hive's value at PATH determines
// how to parse it.
type Set struct {
	Path   []string `json:"path"`
	Raw    string   `json:"raw"`    // the text of VALUE
	IsJSON bool     `json:"isJSON"` // whether Raw is valid JSON; only then Nix parses it as JSON, because a parse error would end the evaluation
}

// attrRE matches an attribute name, which may be quoted. escapeRE matches an escaped character in a quoted name.
var (
	attrRE   = regexp.MustCompile(`^(?:[A-Za-z0-9_][A-Za-z0-9_'-]*|"(?:[^"\\\x00]|\\[^\x00])+")`)
	escapeRE = regexp.MustCompile(`(?s)\\(.)`)
)

// ParseSet parses the argument of --set, such as `roles.worker.count=5`. As in Nix, a name in the
// path that has special characters must be quoted: `roles."gpu.large".count=2`. The path `scheduler` is short for
// `cluster.scheduler`.
func ParseSet(arg string) (Set, error) {
	bad := func(format string, args ...any) (Set, error) {
		return Set{}, failure.NewUsage("--set %s: %s", arg, fmt.Sprintf(format, args...))
	}
	var s Set
	rest := arg
	for more := true; more; rest, more = strings.CutPrefix(rest, ".") {
		name := attrRE.FindString(rest)
		if name == "" {
			return bad("expected an attribute name at %q; write PATH=VALUE, such as roles.worker.count=5", rest)
		}
		rest = rest[len(name):]
		if quoted, ok := strings.CutPrefix(name, `"`); ok {
			name = escapeRE.ReplaceAllString(strings.TrimSuffix(quoted, `"`), "$1")
		}
		s.Path = append(s.Path, name)
	}
	raw, ok := strings.CutPrefix(rest, "=")
	if !ok {
		return bad("expected = and a value after the path, not %q; write PATH=VALUE, such as roles.worker.count=5", rest)
	}
	if strings.ContainsRune(raw, 0) {
		return bad("the value holds a NUL byte")
	}
	if slices.Equal(s.Path, []string{"scheduler"}) {
		s.Path = []string{"cluster", "scheduler"}
	}
	if s.Path[0] != "roles" && s.Path[0] != "cluster" || len(s.Path) < 2 {
		return bad("only paths below roles and cluster can be set")
	}
	s.Raw = raw
	s.IsJSON = json.Valid([]byte(raw))
	return s, nil
}

// ParseSets parses all arguments of --set. If several have the same path, the last one counts.
func ParseSets(texts []string) ([]Set, error) {
	var out []Set
	for _, text := range texts {
		set, err := ParseSet(text)
		if err != nil {
			return nil, err
		}
		out = append(slices.DeleteFunc(out, func(s Set) bool { return slices.Equal(s.Path, set.Path) }), set)
	}
	return out, nil
}
