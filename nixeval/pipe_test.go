package nixeval

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"
)

func TestStartPipe(t *testing.T) {
	var printed []string
	p, err := StartPipe(t.Context(), Command{Argv: []string{"sh", "-c", "echo hello >&2; exec cat"}, Stderr: func(line string) { printed = append(printed, line) }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p, "question"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if _, err := io.ReadFull(p, got); err != nil || string(got) != "question" {
		t.Errorf("%q, %v", got, err)
	}
	p.Close()
	p.Close()
	if !slices.Equal(printed, []string{"hello"}) {
		t.Errorf("%q", printed)
	}

	// A program that does not react to the end of its input is killed.
	if p, err = StartPipe(t.Context(), Command{Argv: []string{"sleep", "1000"}}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	p.Close()
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("Close took %v", took)
	}

	ctx, cancel := context.WithCancel(t.Context())
	if p, err = StartPipe(ctx, Command{Argv: []string{"sleep", "1000"}}); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	cancel()
	if _, err := p.Read(got); err == nil {
		t.Error("the program outlives its context")
	}

	if _, err := StartPipe(t.Context(), Command{Argv: []string{"nixbench-no-such-program"}}); !errors.Is(err, ErrNoNix) {
		t.Errorf("%v", err)
	}
}
