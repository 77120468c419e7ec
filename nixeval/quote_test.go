package nixeval

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/e2e/fixture"
)

var hostile = []string{
	"", "plain", `"`, `\`, `\"`, "${x}", `\${x}`, "$${x}", "$", "''", "a\nb\r\tc", "#", "/* */", "é 漢 🐄", "'; exit 1; '", "\x01\x7f", `\n`, "${builtins.abort \"x\"}", "$\\{",
}

// Nix evaluates a quoted text to exactly the same text.
func TestQuotingSurvivesNix(t *testing.T) {
	fixture.Require(t, "nix")
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	var list strings.Builder
	for _, s := range hostile {
		list.WriteString("[ " + nixString(s) + " (builtins.head " + EncodeJSON([]string{s}) + ") ]\n")
	}
	out, err := Exec(t.Context(), Command{Argv: []string{"nix", "eval", "--json", "--expr", "[ " + list.String() + " ]"}})
	if err != nil {
		t.Fatal(err)
	}
	var got [][]string
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	for i, s := range hostile {
		if diff := cmp.Diff([]string{s, s}, got[i]); diff != "" {
			t.Errorf("%q: %s", s, diff)
		}
	}
}

func TestPathsSurviveNix(t *testing.T) {
	fixture.Require(t, "nix")
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	file := t.TempDir() + `/a b'c"d$e${f}g` + "`.nix"
	write(t, file, `"it is me"`)
	out, err := Exec(t.Context(), Command{Argv: []string{"nix", "eval", "--json", "--impure", "--expr", "import " + nixPath(file)}})
	if err != nil || string(out) != "\"it is me\"\n" && string(out) != `"it is me"` {
		t.Errorf("%q, %v", out, err)
	}
}

// A quoted string contains no unescaped quote or interpolation before its end.
func FuzzQuote(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q := nixString(s)
		if !utf8.ValidString(s) {
			return
		}
		inner := q[1 : len(q)-1]
		var back strings.Builder
		for i := 0; i < len(inner); i++ {
			switch c := inner[i]; {
			case c == '"', c == '$' && strings.HasPrefix(inner[i:], "${"):
				t.Fatalf("%q: %s ends early at %d", s, q, i)
			case c == '\\':
				i++
				back.WriteString(map[byte]string{'n': "\n", 'r': "\r", 't': "\t"}[inner[i]])
				if strings.IndexByte("nrt", inner[i]) < 0 {
					back.WriteByte(inner[i])
				}
			default:
				back.WriteByte(c)
			}
		}
		if back.String() != s {
			t.Fatalf("%q came back as %q", s, back.String())
		}
	})
}
