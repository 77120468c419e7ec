package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The flags of the engines that allow a drain to delete work.
func TestDrainFlags(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "",
		"--drain-bare-pods":                      "drain-bare-pods",
		"--drain-local-data --drain-bare-pods":   "drain-bare-pods drain-local-data",
		"--drain-bare-pods=false":                "",
		"--no-drain --drain-local-data":          "error: --no-drain excludes --drain-bare-pods and --drain-local-data, because nothing is drained",
		"--no-drain --drain-local-data=false":    "",
		"--drain-local-data --drain-bare-pods=0": "drain-local-data",
	} {
		var f drainFlags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(set, noDrainHelp)
		if err := set.Parse(strings.Fields(text)); err != nil {
			t.Fatal(err)
		}
		o, err := f.toOptions()
		got := strings.Join(o.Allowed, " ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want || f.noDrain != strings.Contains(text, "--no-drain") || !slices.IsSorted(f.names()) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
