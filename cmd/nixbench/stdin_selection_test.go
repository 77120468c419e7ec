package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/failure"
)

// On a terminal, --on - must not wait for the user.
func TestSelectionFromTerminal(t *testing.T) {
	master, slave, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	os.Stdin = slave
	_, err = readSelection(t.Context(), []string{"a", "-"})
	if err == nil || failure.KindOf(err) != failure.Usage || !strings.Contains(err.Error(), "stdin is a terminal") {
		t.Errorf("error: %v", err)
	}
}

// Ctrl-C ends the wait for a program that does not close its end of the pipe.
func TestReadInterrupted(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	if _, err := readOrCancel(ctx, func() ([]byte, error) { return io.ReadAll(in) }); !errors.Is(err, errInterrupted) {
		t.Errorf("error: %v", err)
	}
}
