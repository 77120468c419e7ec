package nixeval

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/event"
)

// Expression is a query about the hive: a Nix function of { pkgs, lib, nodes }.
type Expression struct {
	Text string // used if File is empty
	File string // path of a file that contains the function
}

// Introspect evaluates a query and returns its value as JSON.
func (e *Evaluator) Introspect(ctx context.Context, x Expression) ([]byte, error) {
	f, err := x.toNixFunction(e.Source.IsFlake() && !e.Impure)
	if err != nil {
		return nil, err
	}
	return e.evalJSON(ctx, event.Evaluate, "h: h.introspect "+f)
}

// IntrospectDrvs evaluates a query, writes the derivations in its value into the store, and returns the paths of these
// derivations.
func (e *Evaluator) IntrospectDrvs(ctx context.Context, x Expression) ([]string, error) {
	f, err := x.toNixFunction(e.Source.IsFlake() && !e.Impure)
	if err != nil {
		return nil, err
	}
	var drvs []string
	err = e.eval(ctx, event.Evaluate, "h: h.drvPaths (h.introspect "+f+")", &drvs)
	return drvs, err
}

// toNixFunction returns the query as the text of a Nix function. With pure, Nix can evaluate this text in pure mode.
func (x Expression) toNixFunction(pure bool) (string, error) {
	if x.File == "" {
		return "(\n" + x.Text + "\n)", nil // the closing parenthesis has its own line, because the text may end with a comment
	}
	abs, err := filepath.Abs(x.File)
	if err != nil {
		return "", err
	}
	if pure {
		// In pure mode, Nix reads a file outside the flake only if its hash is given, so fetch the file by its hash.
		file, err := fetchExpression(abs, "expression.nix")
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
