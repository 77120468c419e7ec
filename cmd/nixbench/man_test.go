package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Each command has a manual page with all of its flags, and with the default of each flag that has one.
func TestManuals(t *testing.T) {
	dir := t.TempDir()
	root := newRootCommand(newApp(context.Background(), nil))
	if err := writeManuals(dir, root); err != nil {
		t.Fatal(err)
	}
	flags, defaults := 0, 0
	for _, c := range append([]*cobra.Command{root}, commandsBelow(root)...) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		data, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		page := strings.ReplaceAll(string(data), `\-`, "-")
		_, options, _ := strings.Cut(page, ".SH OPTIONS\n")
		options, _, _ = strings.Cut(options, ".SH ")
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			flags++
			_, entry, found := strings.Cut(options, "--"+f.Name+"\n")
			if !found {
				_, entry, found = strings.Cut(options, "--"+f.Name+" ")
			}
			entry, _, _ = strings.Cut(entry, "\n.TP\n")
			entry = strings.TrimRight(entry, "\n")
			value := defaultOf(f)
			if value != "" {
				defaults++
			}
			if !found || value != "" && !strings.HasSuffix(entry, "\n(default: "+value+")") || strings.Count(entry, "default:") > 1 {
				t.Errorf("%s: --%s with the default %q: %q", name, f.Name, value, entry)
			}
		})
	}
	if flags < 100 || defaults < 10 {
		t.Errorf("only %d flags, of which %d have a default", flags, defaults)
	}
}
