package nixeval

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/event"
)

// Expression is what a user wants to know of the hive: a Nix function of
// { pkgs, lib, nodes }, as text or as a file.
type Expression struct {
	Text string
	File string
}

// Introspect gives the JSON of an expression's value.
func (e *Evaluator) Introspect(ctx context.Context, x Expression) ([]byte, error) {
	f, err := e.function(x)
	if err != nil {
		return nil, err
	}
	return e.evalJSON(ctx, event.Evaluate, "h: h.introspect "+f)
}

// IntrospectDrvs writes the derivations of an expression's value into the store and
// gives their paths.
func (e *Evaluator) IntrospectDrvs(ctx context.Context, x Expression) ([]string, error) {
	f, err := e.function(x)
	if err != nil {
		return nil, err
	}
	var drvs []string
	err = e.eval(ctx, event.Evaluate, "h: h.drvPaths (h.introspect "+f+")", &drvs)
	return drvs, err
}

func (e *Evaluator) function(x Expression) (string, error) {
	if x.File == "" {
		return "(\n" + x.Text + "\n)", nil // on lines of its own: it may end in a comment
	}
	abs, err := filepath.Abs(x.File)
	if err != nil {
		return "", err
	}
	if e.Source.IsFlake() && !e.Impure {
		// Pure mode reads no file outside the flake, but one whose hash is known.
		file, err := fetched(abs, "expression.nix")
		if err != nil {
			return "", fmt.Errorf("expression: %w", err)
		}
		return "(import " + file + ")", nil
	}
	if _, err := os.Stat(abs); err != nil {
		return "", fmt.Errorf("expression: %w", err)
	}
	path, err := nixPath(abs)
	return "(import " + path + ")", err
}
