package failure

import (
	"fmt"
	"runtime/debug"
)

// Recover calls f. If f panics, Recover returns the panic as an error with the stack.
func Recover(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("internal error, please report it: %v\n%s", value, debug.Stack())
		}
	}()
	return f()
}
