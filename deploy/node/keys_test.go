package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/nixeval"
)

// unreachableHost is a node that cannot be reached.
type unreachableHost struct{}

func (unreachableHost) Conn(ctx context.Context) (*remote.Conn, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (u unreachableHost) Fresh(ctx context.Context) (*remote.Conn, error) { return u.Conn(ctx) }

// The upload of late keys leaves half of the time for the confirmation.
func TestLateKeysOfUnreachableNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		changed := (&Changer{}).uploadLateKeys(t.Context(), unreachableHost{}, secrets.Set{}, Options{Confirm: time.Minute})
		if took := time.Since(begin); changed || took != 30*time.Second {
			t.Errorf("the node has changed: %t, after %v", changed, took)
		}
	})
}

// A node that has rolled back has restored its keys. If that cannot be verified, the error does not
// claim that the keys are those of the new system.
func TestKeysOfUnreachableNodes(t *testing.T) {
	rolledBack := &activate.FailedError{Node: "a", Result: activate.Result{Outcome: activate.RolledBack}}
	for _, test := range []struct {
		why  error
		want string
	}{
		{rolledBack, "its keys may be those of the new system; nixbench apply compares them with the hive: a: restore keys: no answer within 5s"},
		{&fleet.NodeError{Node: "a", Err: rolledBack}, "its keys may be those of the new system; "},
		{errors.New("no space left"), "its keys may be those of the new system; nixbench apply compares them with the hive: a: restore keys: no answer within 5s"},
		{&activate.LostSightError{}, ""},
		{&activate.BusyError{}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &Changer{Uploader: &secrets.Uploader{}}
			task := Task{Node: nixeval.Node{Name: "a"}, KeySet: &secrets.Set{Keys: make([]secrets.Key, 1)}}
			err := c.restoreKeys(t.Context(), unreachableHost{}, task, test.why)
			switch {
			case test.want == "" && err != nil, test.want != "" && err == nil:
				t.Errorf("%v: got %v", test.why, err)
			case err != nil && !strings.HasPrefix(err.Error(), test.want):
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

// After a switch, the node is not asked about keys again if the upload before the switch has shown that there is nothing
// to upload or to remove.
func TestKeysAfterSwitch(t *testing.T) {
	early, late := secrets.Key{Name: "early", Early: true}, secrets.Key{Name: "late"}
	for _, test := range []struct {
		keys   []secrets.Key
		goal   Goal
		before secrets.Result
		after  activate.Node
		want   bool
	}{
		{[]secrets.Key{early}, Switch, secrets.Result{Uploaded: []string{"early"}}, activate.Node{}, false},
		{[]secrets.Key{early}, Switch, secrets.Result{Stale: []string{"/run/keys/old"}}, activate.Node{}, true},
		{[]secrets.Key{early, late}, Switch, secrets.Result{}, activate.Node{}, true},
		{[]secrets.Key{late}, Switch, secrets.Result{}, activate.Node{}, true},
		{nil, Switch, secrets.Result{}, activate.Node{}, true}, // no upload before the switch, so the keys to remove are unknown
		{[]secrets.Key{early}, Boot, secrets.Result{}, activate.Node{}, true},
		{nil, Switch, secrets.Result{}, activate.Node{NoKeys: true}, false},
		{[]secrets.Key{late}, Switch, secrets.Result{}, activate.Node{NoKeys: true}, true},
	} {
		if got := hasKeysAfterSwitch(Task{KeySet: &secrets.Set{Keys: test.keys}}, Options{Goal: test.goal}, test.before, test.after); got != test.want {
			t.Errorf("%+v: got %v", test, got)
		}
	}
}

// The keys of a node that is deployed without a set of keys are left alone. An empty set removes them.
func TestKeysAreLeftAlone(t *testing.T) {
	for _, test := range []struct {
		keys *secrets.Set
		asks bool // the node is asked about its keys
	}{{nil, false}, {&secrets.Set{}, true}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			task := Task{Node: nixeval.Node{Name: "a"}, KeySet: test.keys}
			for _, goal := range []Goal{Switch, UploadKeys} {
				_, err := (&Changer{Uploader: &secrets.Uploader{}}).uploadKeys(ctx, unreachableHost{}, task, Options{Goal: goal}, secrets.Post)
				if (err != nil) != test.asks {
					t.Errorf("%v, %s: %v", test.keys, goal, err)
				}
			}
			if got := hasKeysAfterSwitch(task, Options{Goal: Switch}, secrets.Result{}, activate.Node{}); got != test.asks {
				t.Errorf("%v: keys after the switch: %t", test.keys, got)
			}
		})
	}
}
