package failure

// Hint returns what the user can do about err: the first hint that is not empty, of err itself or of its causes.
func Hint(err error) string {
	if e, ok := err.(interface{ Hint() string }); ok && e.Hint() != "" {
		return e.Hint()
	}
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, cause := range e.Unwrap() {
			if hint := Hint(cause); hint != "" {
				return hint
			}
		}
	case interface{ Unwrap() error }:
		if cause := e.Unwrap(); cause != nil {
			return Hint(cause)
		}
	}
	return ""
}
