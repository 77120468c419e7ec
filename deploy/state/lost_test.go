package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/failure"
)

// The hint of a state that cannot be used never abandons machines. Without machines the state may be lost.
func TestALostStateOfBootedMachines(t *testing.T) {
	d := used(t)
	runs := filepath.Join(string(d), "runs")
	if err := os.Mkdir(runs, 0o700); err != nil {
		t.Fatal(err)
	}
	harms := map[string]func(file string) error{
		"damaged": func(file string) error { return os.WriteFile(file, []byte(`{"version":2,"nod`), 0o600) },
		"empty":   func(file string) error { return os.WriteFile(file, nil, 0o600) },
		"newer":   func(file string) error { return os.WriteFile(file, []byte(`{"version":4}`), 0o600) },
		"gone":    os.Remove,
	}
	for name, harm := range harms {
		if err := errors.Join(os.WriteFile(d.stateFile(), nil, 0o600), harm(d.stateFile())); err != nil {
			t.Fatal(err)
		}
		_, err := d.Load()
		if err == nil || !strings.Contains(err.Error(), d.stateFile()) || !strings.Contains(failure.Hint(err), "do not start without it") || strings.Contains(failure.Hint(err), "move it away") {
			t.Errorf("%s: %v; %s", name, err, failure.Hint(err))
		}
	}
	if err := os.Remove(d.ClientKey()); err != nil {
		t.Fatal(err)
	}
	for name, harm := range harms {
		if err := errors.Join(os.WriteFile(d.stateFile(), nil, 0o600), harm(d.stateFile())); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Load(); (err == nil) != (name == "gone") || err != nil && !strings.Contains(failure.Hint(err), "or move it away") {
			t.Errorf("%s, without machines: %v", name, err)
		}
	}
}
