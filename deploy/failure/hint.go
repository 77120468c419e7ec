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
