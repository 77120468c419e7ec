package check

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// A wait looks at the nodes after five seconds, says what it has found, and ends when that lasts.
func TestLook(t *testing.T) {
	for name, test := range map[string]struct {
		holds time.Duration // when the condition holds; 0: never
		look  func(after time.Duration) (string, bool)
		ends  time.Duration
		said  string
	}{
		"short": {4 * time.Second, nil, 4 * time.Second, "c: no"},
		"long":  {20 * time.Second, func(time.Duration) (string, bool) { return "a: u is starting", false }, 20 * time.Second, "c: no | c: no; a: u is starting"},
		"lasts": {0, func(time.Duration) (string, bool) { return "a: u is failed", true }, 65 * time.Second, "c: no | c: no; a: u is failed"},
		"recovers": {0, func(after time.Duration) (string, bool) {
			return "a: u is failed", after < 40*time.Second || after > time.Minute
		}, 2*time.Minute + 5*time.Second,
			"c: no | c: no; a: u is failed"},
		"never": {0, func(time.Duration) (string, bool) { return "", false }, 5 * time.Minute, "c: no"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				begin := time.Now()
				var said []string
				send := event.Sink(func(e event.Event) {
					if e.Kind == event.Progress && e.Text != "c" {
						said = append(said, e.Text)
					}
				})
				_, err := Await(ctx, []Condition{{
					Name: "c", Every: time.Second,
					Probe: func(context.Context) error {
						if test.holds > 0 && time.Since(begin) >= test.holds {
							return nil
						}
						return errors.New("no")
					},
					Look: func(context.Context) (string, bool) { return test.look(time.Since(begin)) },
				}}, send)
				if took := time.Since(begin).Round(time.Second); took != test.ends || (err == nil) != (test.holds > 0) {
					t.Errorf("%v after %v, want the end after %v", err, took, test.ends)
				}
				if got := strings.Join(said, " | "); got != test.said {
					t.Errorf("said %q, want %q", got, test.said)
				}
				if err != nil && !strings.Contains(err.Error(), strings.TrimPrefix(test.said, "c: no | c: no; ")) {
					t.Errorf("the error does not have what was found: %v", err)
				}
			})
		})
	}
}

// A condition that waiting does not change is probed once.
func TestFinal(t *testing.T) {
	probes := 0
	_, err := Await(t.Context(), []Condition{{Name: "c", Probe: func(context.Context) error { probes++; return Final(errors.New("no")) }}}, nil)
	if probes != 1 || err == nil {
		t.Errorf("%d probes, %v", probes, err)
	}
}
