package selection

import (
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/deploy/failure"
)

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
