package check

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

func TestAwait(t *testing.T) {
	looks := 0
	var said []string
	send := event.Sink(func(e event.Event) { said = append(said, string(e.Kind)+" "+e.Text) })
	results, err := Await(t.Context(), []Condition{
		{Name: "first", Every: time.Millisecond, Probe: func(context.Context) error {
			looks++
			if looks < 4 {
				return errors.New("not yet")
			}
			return nil
		}},
		{Name: "second", Probe: func(context.Context) error {
			if looks != 4 {
				t.Error("the second was looked at before the first held")
			}
			return nil
		}},
	}, send)
	if err != nil || looks != 4 || len(results) != 2 || !results[0].OK || !results[1].OK {
		t.Errorf("%+v, %v, %d looks", results, err, looks)
	}
	if n := len(slices.DeleteFunc(slices.Clone(said), func(s string) bool { return s != "progress first: not yet" })); n != 1 {
		t.Errorf("what is missing is said once as long as it is the same: %q", said)
	}
}

func TestAwaitGivesUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	second := false
	results, err := Await(ctx, []Condition{
		{Name: "3 nodes are Ready", Every: time.Millisecond, Probe: func(context.Context) error { return errors.New("w-2 is not") },
			Explain: func(ctx context.Context) string {
				if ctx.Err() != nil {
					t.Error("no time is left to explain")
				}
				return "kubelet: it is dead"
			}},
		{Name: "later", Probe: func(context.Context) error { second = true; return nil }},
	}, nil)
	var e *Error
	if !errors.As(err, &e) || second || len(results) != 2 || results[1].OK {
		t.Fatalf("%+v, %v", results, err)
	}
	for _, want := range []string{"3 nodes are Ready: not after", "w-2 is not", "kubelet: it is dead"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if strings.Contains(err.Error(), "later") {
		t.Errorf("what was not looked at is no failure: %v", err)
	}
	if _, err := json.Marshal(results); err != nil {
		t.Error(err)
	}
}

func TestAwaitCancelled(t *testing.T) {
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	begin := time.Now()
	_, err := Await(ctx, []Condition{{Name: "never", Probe: func(ctx context.Context) error {
		cancel(interrupted)
		<-ctx.Done()
		return ctx.Err()
	}, Explain: func(context.Context) string { t.Error("who interrupts does not wait for explanations"); return "" }}}, nil)
	if !errors.Is(err, interrupted) || time.Since(begin) > 2*time.Second {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
}
