package selection

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Selector is a parsed --on. It selects the nodes that match at least one term of want and no term of not. If
// want is empty, it selects all nodes that match no term of not.
type Selector struct {
	want, not []term
}

// term is one part of --on between commas.
type term struct {
	text  string // as the user wrote it
	label bool   // the term is @…, which matches tags and roles and not names
	glob  string
}

// ParseSelector parses all values of --on. `web-*,@db,!web-3` selects every node whose name begins with web- or whose tag or role is
// db, but not web-3. If all terms begin with !, it selects all other nodes. The order of terms does not matter.
func ParseSelector(args []string) (Selector, error) {
	var s Selector
	for _, arg := range args {
		for part := range strings.SplitSeq(arg, ",") {
			t := term{text: strings.TrimSpace(part)}
			rest, not := strings.CutPrefix(t.text, "!")
			t.glob, t.label = strings.CutPrefix(strings.TrimSpace(rest), "@")
			if t.glob == "" {
				return Selector{}, failure.NewUsage("--on %q: empty term; write names, globs, @tags or @roles between commas, with ! for not", arg)
			}
			t.glob = toPathGlob(t.glob)
			if _, err := path.Match(t.glob, ""); err != nil {
				return Selector{}, failure.NewUsage("--on %q: %q is not a valid glob: a `[` needs its `]`", arg, t.glob)
			}
			if not {
				s.not = append(s.not, t)
			} else {
				s.want = append(s.want, t)
			}
		}
	}
	return s, nil
}

// globPart matches an escaped character of a glob, or a class of characters without its closing bracket.
var globPart = regexp.MustCompile(`\\.|\[(\\.|[^\]\\])*`)

// toPathGlob returns a glob in the syntax of path.Match: shells and Colmena write [!…] for a class that excludes characters, and
// path.Match [^…].
func toPathGlob(glob string) string {
	return globPart.ReplaceAllStringFunc(glob, func(part string) string {
		if excluded, found := strings.CutPrefix(part, "[!"); found {
			return "[^" + excluded
		}
		return part
	})
}

func (s Selector) All() bool { return len(s.want) == 0 && len(s.not) == 0 }

// Select returns the selected nodes in the order of the hive. A term without a glob that matches no name, tag or role is an error. If
// such a term were ignored, a misspelled !term would select a node that the user wanted to exclude.
//
// The tags of a node that cannot be evaluated are unknown. Such a node is selected if a term of want is a tag, unless a term of not
// matches its name. The run then reports the evaluation error of the node instead of leaving the node out.
func (s Selector) Select(h *nixeval.Hive) ([]nixeval.Node, error) {
	for _, t := range slices.Concat(s.want, s.not) {
		if !t.canMatch(h) {
			return nil, t.explainMismatch(h)
		}
	}
	var out []nixeval.Node
	for _, n := range h.Nodes {
		unknown := h.Broken[n.Unit] != nil
		wanted := len(s.want) == 0 || matchesAny(s.want, n) || unknown && slices.ContainsFunc(s.want, func(t term) bool { return t.label })
		if wanted && !matchesAny(s.not, n) {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		if len(h.Nodes) == 0 {
			return nil, failure.NewUsage("the hive has no nodes; add one, or a role with a count")
		}
		return nil, failure.NewUsage("--on %s: no node is selected%s", s, describeHive(h))
	}
	return out, nil
}

func (s Selector) String() string {
	var parts []string
	for _, t := range slices.Concat(s.want, s.not) {
		parts = append(parts, t.text)
	}
	return strings.Join(parts, ",")
}

// explainMismatch returns the error for a term that matches nothing, with a hint if it would match with an @ added or removed.
func (t term) explainMismatch(h *nixeval.Hive) error {
	kind, hint := "node", "%s is a tag or a role; write @%[1]s"
	if t.label {
		kind, hint = "tag or role", "%s is the name of a node; write it without @"
	}
	err := failure.NewUsage("--on %s: no such %s%s", t.text, kind, describeHive(h))
	if other := (term{glob: t.glob, label: !t.label}); len(h.Broken) == 0 && other.canMatch(h) {
		err = failure.WithHint(err, fmt.Sprintf(hint, t.glob))
	}
	return err
}

// canMatch reports whether the term is valid for the hive; an invalid term is probably misspelled. A glob is valid even if it
// matches no node. If a node of the hive cannot be evaluated, every tag is valid, because the tags of this node are unknown.
func (t term) canMatch(h *nixeval.Hive) bool {
	if strings.ContainsAny(t.glob, `*?[\`) || t.label && len(h.Broken) > 0 {
		return true
	}
	if _, role := h.Roles[t.glob]; role && t.label {
		return true // also a role with count 0, which has no nodes
	}
	return slices.ContainsFunc(h.Nodes, t.matches)
}

func (t term) matches(n nixeval.Node) bool {
	if !t.label {
		return matchGlob(t.glob, n.Name)
	}
	return n.Role != "" && matchGlob(t.glob, n.Role) || slices.ContainsFunc(n.Tags, func(tag string) bool { return matchGlob(t.glob, tag) })
}

func matchesAny(terms []term, n nixeval.Node) bool {
	return slices.ContainsFunc(terms, func(t term) bool { return t.matches(n) })
}

// matchGlob reports whether the glob matches all of s. Unlike in path.Match, * and ? also match a slash.
func matchGlob(glob, s string) bool {
	ok, _ := path.Match(strings.ReplaceAll(glob, "/", "\x00"), strings.ReplaceAll(s, "/", "\x00"))
	return ok
}

// describeHive returns a short list of the names, tags and roles of the hive, for error messages.
func describeHive(h *nixeval.Hive) string {
	labels := map[string]bool{}
	for _, n := range h.Nodes {
		for _, tag := range n.Tags {
			labels["@"+tag] = true
		}
	}
	for role := range h.Roles {
		labels["@"+role] = true
	}
	text := "; the hive has " + event.Abbreviate(Names(h.Nodes), ", ")
	if len(labels) > 0 {
		text += " and " + event.Abbreviate(slices.Sorted(maps.Keys(labels)), ", ")
	}
	return text
}

func Names(nodes []nixeval.Node) (names []string) {
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}

// Units returns the units of the evaluation (a node, or all nodes of a role) to which the nodes belong, each once, in order.
func Units(nodes []nixeval.Node) []string {
	var out []string
	for _, n := range nodes {
		if !slices.Contains(out, n.Unit) {
			out = append(out, n.Unit)
		}
	}
	return out
}

// Share is a number of nodes or a percentage of all nodes: `3` or `25%`. The zero value means all nodes.
type Share struct{ n, percent int }

var One = Share{n: 1}

// All reports whether the share is the zero value, which means all nodes.
func (s Share) All() bool { return s == Share{} }

// ParseShare parses the value of --max-unavailable. An empty text is the zero value, all nodes.
func ParseShare(text string) (Share, error) {
	if text == "" {
		return Share{}, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || percent && n > 100 {
		return Share{}, failure.NewUsage("--max-unavailable %s: expected a number of nodes, such as 3, or a share, such as 25%%", text)
	}
	if percent {
		return Share{percent: n}, nil
	}
	return Share{n: n}, nil
}

// Of returns the share of n nodes as a number. It is at least one, so that a run makes progress.
func (s Share) Of(n int) int {
	switch {
	case s.n > 0:
		return min(s.n, n)
	case s.percent > 0:
		return max(1, n*s.percent/100)
	}
	return n
}
