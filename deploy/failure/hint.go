package failure

// Hint returns what the user can do about err: the first hint that is not empty, first of err itself and then of its causes.
func Hint(err error) string {
	if e, ok := err.(interface{ Hint() string }); ok && e.Hint() != "" {
		return e.Hint()
	}
	for _, cause := range causes(err) {
		if hint := Hint(cause); hint != "" {
			return hint
		}
	}
	return ""
}

// causes returns the errors that err wraps or joins.
func causes(err error) []error {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	case interface{ Unwrap() error }:
		if cause := e.Unwrap(); cause != nil {
			return []error{cause}
		}
	}
	return nil
}

// WithHint returns an error with the message of err and the given hint. Unless the hint is empty, it hides the hints of
// err and its causes.
func WithHint(err error, hint string) error { return &hinted{err, hint} }

type hinted struct {
	error
	hint string
}

func (e *hinted) Hint() string  { return e.hint }
func (e *hinted) Unwrap() error { return e.error }

// Suggest returns the text "; did you mean NAME?" with the name that is most similar to a mistyped name, or an empty text if none is. The
// hive's Nix code has the same function (suggestName in nixeval/nix/eval.nix).
func Suggest(typed string, names []string) string {
	for most := 1; most <= 2; most++ {
		for _, name := range names {
			if isNear(most, typed, name) {
				return "; did you mean " + name + "?"
			}
		}
	}
	return ""
}

// isNear reports whether at most n letters must be inserted, removed or replaced to change a into b.
func isNear(n int, a, b string) bool {
	switch {
	case a == "" || b == "":
		return len(a)+len(b) <= n
	case a[0] == b[0]:
		return isNear(n, a[1:], b[1:])
	}
	return n > 0 && (isNear(n-1, a[1:], b) || isNear(n-1, a, b[1:]) || isNear(n-1, a[1:], b[1:]))
}
