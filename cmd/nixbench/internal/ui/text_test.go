package ui

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// terminal is a writer that is as wide as a terminal.
type terminal struct {
	strings.Builder
	columns int
}

func (t *terminal) Columns() int { return t.columns }

func TestTableOnATerminal(t *testing.T) {
	rows := []Row{
		{"NODE", "ROLE", "SIZE", "STATE", "NOTE"},
		{"worker-1", "worker", "1.0 GiB", "running", "the first of three words"},
		{"worker-2", "-", "-", "off", "-"},
	}
	for name, test := range map[string]struct {
		columns int
		want    string
	}{
		"no terminal": {0, `
NODE      ROLE    SIZE     STATE    NOTE
worker-1  worker  1.0 GiB  running  the first of three words
worker-2  -       -        off      -
`},
		"it fits": {60, `
NODE      ROLE    SIZE     STATE    NOTE
worker-1  worker  1.0 GiB  running  the first of three words
worker-2  -       -        off      -
`},
		"columns below the row": {40, `
NODE      ROLE    SIZE     STATE
worker-1  worker  1.0 GiB  running
    NOTE the first of three words
worker-2  -       -        off
`},
		"never narrower than 40": {1, `
NODE      ROLE    SIZE     STATE
worker-1  worker  1.0 GiB  running
    NOTE the first of three words
worker-2  -       -        off
`},
	} {
		w := &terminal{columns: test.columns}
		Table(w, rows)
		if diff := cmp.Diff(test.want, "\n"+w.String()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestListOnATerminal(t *testing.T) {
	w := &terminal{columns: 40}
	List(w, []Row{{"worker-1", "/nix/store/0123456789abcdef0123456789abcdef-a-system", "first"}, {"worker-2", "-"}})
	want := "worker-1\n    /nix/store/0123456789abcdef0123456789abcdef-a-system\n    first\nworker-2\n"
	if diff := cmp.Diff(want, w.String()); diff != "" {
		t.Error(diff)
	}
}

func TestWriteListAndText(t *testing.T) {
	items := []string{"+ one.service", "~ two.service", "- three.service"}
	w := &terminal{columns: 40}
	WriteList(w, "  units: ", items, "    ")
	WriteText(w, "worker-1: a note that is longer than the terminal")
	want := "  units: + one.service, ~ two.service,\n    - three.service\nworker-1: a note that is longer than the\n  terminal\n"
	if diff := cmp.Diff(want, w.String()); diff != "" {
		t.Error(diff)
	}
	var b strings.Builder
	WriteList(&b, "  units: ", items, "    ")
	if want := "  units: + one.service, ~ two.service, - three.service\n"; b.String() != want {
		t.Errorf("not on a terminal: got %q, want %q", b.String(), want)
	}
}

// The width of a view's stdout reaches the tables that it writes.
func TestColumnsOfAView(t *testing.T) {
	if got := Columns(&errorWriter{Writer: &terminal{columns: 91}}); got != 91 {
		t.Errorf("got %d, want 91", got)
	}
}
