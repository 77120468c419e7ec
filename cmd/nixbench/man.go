package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// manCommand returns the hidden command that writes the manual pages. The Nix package of nixbench runs this command when it is
// built.
func manCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		return writeManuals(args[0], cmd.Root())
	})
	return cmd
}

// writeManuals writes the manual pages of a command and of all commands below it into a folder. A page is the help text of the
// command, with its line breaks.
func writeManuals(dir string, cmd *cobra.Command) error {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	text := cmp.Or(cmd.Long, cmd.Short)
	if cmd.Runnable() {
		text += "\n\n" + cmd.UsageString()
	}
	page := fmt.Sprintf(".TH %s 1 \"\" nixbench\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n%s\n.fi\n",
		escapeRoff(strings.ToUpper(name)), escapeRoff(name), escapeRoff(cmd.Short), escapeRoff(text))
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(page), 0o644); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			if err := writeManuals(dir, sub); err != nil {
				return err
			}
		}
	}
	return nil
}

// escapeRoff escapes text so that roff prints it literally.
func escapeRoff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace(text)
	return strings.TrimRight(text, "\n")
}
