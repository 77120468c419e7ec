package deploy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// newRequest returns a request for a hive with the named nodes a and b, or without nodes.
func newRequest(t *testing.T, empty bool) Request {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hive.nix")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	survey := `{"meta": {"allowApplyAll": false}, "named": ["a", "b"], "units": ["a", "b"], "deployments": {"a": {"targetHost": ["a.example"]}, "b": {"targetHost": null}}}`
	if empty {
		survey = `{"meta": {}}`
	}
	return Request{
		File: file, Eval: nixeval.Options{Run: func(context.Context, nixeval.Command) ([]byte, error) { return []byte(survey), nil }},
		Hypervisors: func(event.Sink) machine.Opener { return nil },
		Describe:    func(err error) (int, error) { return 7, err },
	}
}

// A session of a command that changes something holds the lock until it is closed; others need none.
func TestSessionHoldsLock(t *testing.T) {
	r := newRequest(t, false)
	reader := r
	r.Command, r.Nodes = "reboot", SelectedNodes
	first, err := Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var locked *state.LockedError
	if _, err := Open(t.Context(), r); !errors.As(err, &locked) || locked.Holder.Command != "reboot" {
		t.Errorf("the second session: %v", err)
	}
	if s, err := Open(t.Context(), reader); err != nil {
		t.Errorf("a session that reads: %v", err)
	} else {
		s.Close()
	}
	first.Close()
	if again, err := Open(t.Context(), r); err != nil {
		t.Errorf("after the end of the first one: %v", err)
	} else {
		again.Close()
	}
}

// A run is recorded with its events, also with the time of an answer, and with the described error. It leaves no record if the user declined it.
func TestSessionRecordsRun(t *testing.T) {
	r := newRequest(t, false)
	r.Command = "stop"
	s, err := Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Now()
	_ = s.withRecord(t.Context(), func(*stages.Deployer) error {
		return failure.WithKind(failure.Declined, errors.New("no"))
	})
	if list, err := runs.List(s.Dir); err != nil || len(list) != 0 {
		t.Errorf("after a declined run: %+v, %v", list, err)
	}
	broken := errors.New("it broke")
	err = s.withRecord(t.Context(), func(*stages.Deployer) error {
		s.Send(event.Event{Kind: event.Answer, Time: now, Since: now.Add(-3 * time.Second)})
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("error: %v", err)
	}
	run, err := runs.Open(s.Dir, "last")
	if err != nil {
		t.Fatal(err)
	}
	if run.Exit == nil || *run.Exit != 7 || run.Error != broken.Error() || run.Answers != 3 || run.Command != "stop" {
		t.Errorf("the record: %+v", run)
	}
}

// Which nodes a session has depends on the request.
func TestSessionSelectsNodes(t *testing.T) {
	for name, test := range map[string]struct {
		empty  bool
		change func(*Request)
		want   []string // nil: a usage error
	}{
		"all":                     {false, func(r *Request) { r.Nodes = SelectedNodes }, []string{"a", "b"}},
		"some":                    {false, func(r *Request) { r.Nodes, r.On = SelectedNodes, []string{"b"} }, []string{"b"}},
		"remote":                  {false, func(r *Request) { r.Nodes = RemoteNodes }, []string{"a"}},
		"booted":                  {false, func(r *Request) { r.Nodes = BootedNodes }, nil},
		"one":                     {false, func(r *Request) { r.Pick = NodeNamed("b") }, []string{"b"}},
		"missing":                 {false, func(r *Request) { r.Pick = NodeNamed("c") }, nil},
		"all, not allowed":        {false, func(r *Request) { r.Nodes, r.AllNodesOnly = SelectedNodes, true }, nil},
		"some, all not allowed":   {false, func(r *Request) { r.Nodes, r.AllNodesOnly, r.On = SelectedNodes, true, []string{"a"} }, []string{"a"}},
		"all of an empty hive":    {true, func(r *Request) { r.Nodes = SelectedNodes }, nil},
		"none of an empty hive":   {true, func(*Request) {}, []string{}},
		"the hive of two sources": {false, func(r *Request) { r.Flake = "." }, nil},
	} {
		r := newRequest(t, test.empty)
		test.change(&r)
		s, err := Open(t.Context(), r)
		if test.want == nil {
			if err == nil || failure.KindOf(err) != failure.Usage {
				t.Errorf("%s: error %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := []string{}
		for _, n := range s.Nodes {
			got = append(got, n.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: nodes %q", name, got)
		}
		s.Close()
	}
}
