package main

import (
	"slices"
	"strings"
	"testing"
)

func TestSkippedTestsAreFound(t *testing.T) {
	const output = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n    b_test.go:1: no KVM\n--- SKIP: TestB (0.00s)\n" +
		"--- PASS: TestC (1.00s)\n    --- SKIP: TestC/one (0.00s)\nPASS\nok  \tx\t1s"
	var copied strings.Builder
	skipped := copyAndListSkipped(&copied, strings.NewReader(output))
	if !slices.Equal(skipped, []string{"TestB", "TestC/one"}) || copied.String() != output {
		t.Errorf("skipped %q, copied %q", skipped, copied.String())
	}
}
