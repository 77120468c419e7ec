package nixeval

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"github.com/nixbench/nixbench/deploy/child"
	"github.com/nixbench/nixbench/deploy/event"
)

// beforeFileRE matches the versions of Nix before 2.10, in which the file is an argument of `nix repl` without --file.
var beforeFileRE = regexp.MustCompile(`\b2\.\d\b`)

// Repl runs `nix repl` on the terminal until the user exits. The REPL has the variables `nodes`,
// `pkgs` and `lib` of the hive.
func (e *Evaluator) Repl(ctx context.Context) error {
	if e.Source.IsFlake() {
		// Evaluate almost nothing, for two purposes: to find the flake output that contains the hive, and to make Nix lock the
		// inputs of the flake, which getFlake does not do. The hive itself may be broken, because the user may start the REPL to
		// debug it.
		if _, err := e.evalJSON(ctx, event.Survey, "h: null"); err != nil {
			return err
		}
	}
	file, err := e.writeReplFile()
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(file))
	version, err := e.Run(ctx, Command{Argv: []string{"nix", "--version"}})
	if err != nil {
		return err
	}
	args := append([]string{"repl"}, e.nixFlags()...)
	if !beforeFileRE.Match(version) {
		args = append(args, "--file")
	}
	// Run Nix in the process group of nixbench, so that Nix can use the terminal. Ctrl-C then
	// signals both processes; nixbench ignores the signal, because Nix handles it.
	signal.Ignore(os.Interrupt)
	defer signal.Reset(os.Interrupt)
	cmd := exec.CommandContext(ctx, "nix", append(args, file)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	child.SetDeathSignal(cmd.SysProcAttr, syscall.SIGTERM)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("nix repl: %w", err)
	}
	return nil
}

// writeReplFile writes the expression for the REPL to a file in a new temporary folder, and returns
// the file's path. The caller removes the folder.
func (e *Evaluator) writeReplFile() (string, error) {
	apply, err := e.wrapFunction("h: { inherit (h) nodes pkgs lib; }")
	if err != nil {
		return "", err
	}
	var hive string
	if e.Source.IsFlake() {
		hive = "(builtins.getFlake " + nixString(e.Source.Flake) + ").outputs"
		if attr := e.outputAttr(); !slices.Contains(rootAttrs, attr) {
			hive += "." + attr
		}
	} else {
		hive = "(import " + nixPath(e.Source.File) + ")"
	}
	dir, err := os.MkdirTemp("", "nixbench-repl-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "hive.nix")
	return file, os.WriteFile(file, []byte("("+apply+") "+hive+"\n"), 0o600)
}
