package packages

import "strings"

// Mark returns + for a package that is added, - for one that is removed, and ~ for one that changes.
func (c Change) Mark() string {
	switch {
	case len(c.From) == 0:
		return "+"
	case len(c.To) == 0:
		return "-"
	}
	return "~"
}

// Versions returns the versions of a package: `2.12`, or `8.9 → 8.10`. It is empty if there are none.
func (c Change) Versions() string {
	from, to := strings.Join(c.From, ", "), strings.Join(c.To, ", ")
	switch {
	case len(c.From) == 0:
		return to
	case len(c.To) == 0 || from == to:
		return from
	}
	return from + " → " + to
}
