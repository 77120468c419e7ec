package main

import (
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/failure"
)

func TestApplyLocalNeedsLinux(t *testing.T) {
	if err := checkLocalSystem("linux"); err != nil {
		t.Errorf("Linux: %v", err)
	}
	err := checkLocalSystem("darwin")
	if err == nil || !strings.Contains(err.Error(), "needs Linux") || failure.KindOf(err) != failure.Usage {
		t.Errorf("macOS: %v", err)
	}
}
