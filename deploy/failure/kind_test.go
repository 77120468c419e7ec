package failure

import (
	"errors"
	"fmt"
	"testing"
)

func TestKindOf(t *testing.T) {
	of := func(kind Kind, text string) error { return WithKind(kind, errors.New(text)) }
	down := of(Unreachable, "down")
	for name, test := range map[string]struct {
		err  error
		want Kind
	}{
		"no kind":                          {errors.New("x"), Internal},
		"wrapped":                          {fmt.Errorf("x: %w", down), Unreachable},
		"the earlier of two":               {errors.Join(of(Check, "c"), down), Unreachable},
		"a cause of an earlier kind":       {WithKind(Copy, down), Unreachable},
		"a cause of a later kind":          {WithKind(Provision, down), Provision},
		"lost by the operation":            {WithKind(Lost, fmt.Errorf("x: %w", down)), Lost},
		"a cluster that was only asked":    {WithKind(Cluster, errors.Join(errors.New("x"), down)), Cluster},
		"another node beside the lost one": {errors.Join(WithKind(Lost, down), down), Unreachable},
		"the state folder in a step":       {WithKind(Provision, of(StateFolder, "full")), StateFolder},
	} {
		if got := KindOf(test.err); got != test.want {
			t.Errorf("%s: kind %d, want %d", name, got, test.want)
		}
	}
}

func TestHint(t *testing.T) {
	plain, one, none := errors.New("x"), WithHint(errors.New("y"), "one"), WithHint(errors.New("z"), "")
	for _, test := range []struct {
		err  error
		want string
	}{
		{plain, ""},
		{none, ""},
		{fmt.Errorf("x: %w", one), "one"},
		{errors.Join(plain, none, one), "one"},
		{WithHint(one, "outer"), "outer"},
		{WithHint(one, ""), "one"},
	} {
		if got := Hint(test.err); got != test.want {
			t.Errorf("%v: hint %q, want %q", test.err, got, test.want)
		}
	}
}

// A suggestion differs in at most two letters, and the name with fewer differences comes first.
func TestSuggest(t *testing.T) {
	for typed, want := range map[string]string{
		"throughptu": "; did you mean throughput?", "wait_p5": "; did you mean wait_p50?", "wait_p91": "; did you mean wait_p90?", "Throughput": "; did you mean throughput?",
		"start": "", "": "",
	} {
		if got := Suggest(typed, []string{"throughput", "wait_p50", "wait_p90", "makespan"}); got != want {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
}
