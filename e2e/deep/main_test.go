package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestResultsAreFound(t *testing.T) {
	const output = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n    b_test.go:1: no KVM\n--- SKIP: TestB (0.00s)\n" +
		"--- PASS: TestC (1.00s)\n    --- SKIP: TestC/one (0.00s)\n--- FAIL: TestD (2.00s)\n    --- FAIL: TestD/two (1.00s)\nFAIL\nFAIL\tx\t1s"
	var copied strings.Builder
	got := copyAndReadResults(&copied, strings.NewReader(output))
	if want := (results{passed: []string{"TestA", "TestC"}, failed: []string{"TestD"}, skipped: []string{"TestB", "TestC/one"}}); !reflect.DeepEqual(got, want) || copied.String() != output {
		t.Errorf("results %+v, copied %q", got, copied.String())
	}
}
