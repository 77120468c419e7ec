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
	f, err := queryFunction(x, e.isHermetic())
	if err != nil {
		return nil, err
	}
	return e.evalJSON(ctx, event.Evaluate, "h: h.introspect "+f)
}

// IntrospectDrvs evaluates a query, writes the derivations in its value into the store, and returns the paths of these
// derivations.
func (e *Evaluator) IntrospectDrvs(ctx context.Context, x Expression) (drvs []string, err error) {
	f, err := queryFunction(x, e.isHermetic())
	if err != nil {
		return nil, err
	}
	err = e.eval(ctx, event.Evaluate, "h: h.drvPaths (h.introspect "+f+")", &drvs)
	return drvs, err
}

// queryFunction returns the query as the text of a Nix function. hermetic is whether Nix evaluates in pure mode.
func queryFunction(x Expression, hermetic bool) (string, error) {
	if x.File == "" {
		return "(\n" + x.Text + "\n)", nil // the closing parenthesis has its own line, because the text may end with a comment
	}
	abs, err := filepath.Abs(x.File)
	if err != nil {
		return "", err
	}
	path := nixPath(abs)
	if hermetic {
		// In pure mode, Nix reads a file outside the flake only if its hash is given, so fetch the file by its hash.
		path, err = fetchExpression(abs, "expression.nix")
	} else {
		_, err = os.Stat(abs)
	}
	if err != nil {
		return "", fmt.Errorf("expression: %w", err)
	}
	return "(import " + path + ")", nil
}
