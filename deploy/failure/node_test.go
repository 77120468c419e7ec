package failure

import (
	"errors"
	"fmt"
	"testing"
)

// A node's name is omitted if the message begins with it, also in a wrapped and in a joined error. The name of
// another node stays.
func TestTextOn(t *testing.T) {
	down := On("w-1", errors.New("cannot be reached"))
	for _, test := range []struct {
		err  error
		want string
	}{
		{down, "cannot be reached"},
		{On("w-1", down), "cannot be reached"},
		{On("w-2", errors.New("x")), "w-2: x"},
		{fmt.Errorf("%w; it is off", down), "cannot be reached; it is off"},
		{errors.Join(down, On("w-1", errors.New("y"))), "cannot be reached\nw-1: y"},
		{fmt.Errorf("drain: %w", down), "drain: w-1: cannot be reached"},
		{errors.New("w-1: a text that an error without a node begins with"), "w-1: a text that an error without a node begins with"},
	} {
		if got := TextOn("w-1", test.err); got != test.want {
			t.Errorf("%v: %q, want %q", test.err, got, test.want)
		}
	}
	if On("w-1", nil) != nil {
		t.Error("On(nil) is an error")
	}
}
