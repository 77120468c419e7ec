package suite

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// Deep marks a test of a suite as deep; a test calls it first. Like all end-to-end tests it needs NIXBENCH_E2E=1. With
// NIXBENCH_DEEP=changed, as in CI, the test is skipped if the subject of its suite has not changed since all tests of the
// suite passed.
func Deep(t testing.TB) {
	t.Helper()
	_, file, _, _ := runtime.Caller(1)
	reason, err := decide(filepath.Base(filepath.Dir(file)), os.Getenv, isUnchanged)
	switch {
	case err != nil:
		t.Fatal(err)
	case reason != "":
		t.Skip(reason)
	}
}

// decide returns why a deep test of the suite is skipped, or "" if it runs.
func decide(name string, getenv func(string) string, isUnchanged func(name string) (bool, error)) (reason string, err error) {
	s, err := Find(name)
	if err != nil {
		return "", err
	}
	if getenv("NIXBENCH_E2E") == "" {
		return "needs NIXBENCH_E2E=1", nil
	}
	if getenv("NIXBENCH_DEEP") != "changed" {
		return "", nil
	}
	if unchanged, err := isUnchanged(name); err != nil || !unchanged {
		return "", err
	}
	return s.SkipReason(), nil
}

// SkipReason describes why the deep tests of a suite are skipped, and how to run them.
func (s Suite) SkipReason() string {
	return "the subject of " + s.Folder() + " has not changed since all its tests passed; to run them: make e2e-deep SUITES=" + s.Name
}

var decisions sync.Map // by the name of the suite: func() (bool, error)

// isUnchanged calls IsUnchanged once per process, so that all tests of a run get the same answer.
func isUnchanged(name string) (bool, error) {
	decide, _ := decisions.LoadOrStore(name, sync.OnceValues(func() (bool, error) {
		s, err := Find(name)
		if err != nil {
			return false, err
		}
		return s.IsUnchanged(Root())
	}))
	return decide.(func() (bool, error))()
}
