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

// readSelection returns the values of --on. It replaces each value `-` by the terms on stdin, which are separated by commas or
// white space.
func readSelection(ctx context.Context, on []string) ([]string, error) {
	if !slices.Contains(on, "-") {
		return on, nil
	}
	if term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, failure.WithHint(failure.NewUsage("--on -: stdin is a terminal"), "write the nodes to stdin, such as: echo web-1 db | nixbench … --on -")
	}
	text, err := readOrCancel(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(os.Stdin, maxSelection+1)) })
	switch {
	case ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("--on -: read stdin: %w", err)
	case len(text) > maxSelection:
		return nil, failure.NewUsage("--on -: stdin contains more than %d bytes", maxSelection)
	}
	terms := strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
	if len(terms) == 0 {
		return nil, failure.NewUsage("--on -: stdin contains no nodes")
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
