package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/nixbench/nixbench/deploy/failure"
)

// maxSelection is the maximum size of a selection on stdin, in bytes.
const maxSelection = 1 << 20

// readSelection replaces each value `-` of --on by the terms that stdin contains, separated by commas or
// white space.
func readSelection(ctx context.Context, on []string) ([]string, error) {
	if !slices.Contains(on, "-") {
		return on, nil
	}
	if term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, failure.WithHint(newUsageError("--on -: stdin is a terminal"), "write the nodes to stdin, such as: echo web-1 db | nixbench … --on -")
	}
	text, err := readAllOrCancel(ctx, os.Stdin, maxSelection)
	if err != nil {
		return nil, err
	}
	terms := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
	if len(terms) == 0 {
		return nil, newUsageError("--on -: stdin contains no nodes")
	}
	var out []string
	for _, value := range on {
		if value == "-" {
			value = strings.Join(terms, ",")
		}
		out = append(out, value)
	}
	return out, nil
}

// readAllOrCancel reads in to its end, at most limit bytes. When ctx ends, it returns, but the goroutine
// that reads continues, because the read cannot be interrupted.
func readAllOrCancel(ctx context.Context, in io.Reader, limit int64) (string, error) {
	type read struct {
		data []byte
		err  error
	}
	done := make(chan read, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(in, limit+1))
		done <- read{data, err}
	}()
	select {
	case r := <-done:
		switch {
		case r.err != nil:
			return "", fmt.Errorf("--on -: read stdin: %w", r.err)
		case int64(len(r.data)) > limit:
			return "", newUsageError("--on -: stdin contains more than %d bytes", limit)
		}
		return string(r.data), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
