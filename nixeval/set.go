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

var bareAttrRE = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_'-]*`)

// ParseSet parses the argument of --set, such as `roles.worker.count=5`. As in Nix, a name in the
// path that has special characters must be quoted: `roles."gpu.large".count=2`. The path `scheduler` is short for
// `cluster.scheduler`.
func ParseSet(arg string) (Set, error) {
	bad := func(format string, args ...any) (Set, error) {
		return Set{}, failure.NewUsage("--set %s: %s", arg, fmt.Sprintf(format, args...))
	}
	var s Set
	rest := arg
	for {
		part, after, ok := cutAttr(rest)
		if !ok {
			return bad("expected an attribute name at %q; write PATH=VALUE, such as roles.worker.count=5", rest)
		}
		s.Path = append(s.Path, part)
		rest = after
		if next, ok := strings.CutPrefix(rest, "."); ok {
			rest = next
			continue
		}
		break
	}
	raw, ok := strings.CutPrefix(rest, "=")
	if !ok {
		if rest == "" {
			return bad("there is no value; write PATH=VALUE, such as roles.worker.count=5")
		}
		return bad("unexpected %q; write PATH=VALUE, such as roles.worker.count=5", rest)
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

// cutAttr returns the attribute name at the beginning of s, which may be quoted, and the rest of s. ok is false if s does not
// begin with a valid name.
func cutAttr(s string) (name, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		name = bareAttrRE.FindString(s)
		return name, s[len(name):], name != ""
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:], b.Len() > 0
		case s[i] == '\\' && i+1 < len(s):
			i++
		case s[i] == 0:
			return "", s, false
		}
		b.WriteByte(s[i])
	}
	return "", s, false
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
