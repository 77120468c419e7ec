package event

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb\nün→😀 / ✓ \u00a0":          "a\tb\nün→😀 / ✓ \u00a0",
		"\x1b[2K\r\x07\x7f\x00":          `\u001b[2K\u000d\u0007\u007f\u0000`,
		"C1 \u009b31m, \u0085":           `C1 \u009b31m, \u0085`,
		"bidi \u202eexe\u202c \u2066":    `bidi \u202eexe\u202c \u2066`,
		"\u200b\u200d\ufeff\u00ad\ufe0f": `\u200b\u200d\ufeff\u00ad\ufe0f`,
		"\u2028\u2029 \u3164":            `\u2028\u2029 \u3164`,
		"tag \U000e0041":                 `tag \udb40\udc41`,
		"bytes \x9b31m\xff":              "bytes \ufffd31m\ufffd",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, seed := range []string{"", "a", "\x1b]0;x\x07", "\u202e\xff", "\U000e0041"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Printable(text)
		for _, r := range got {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
				t.Errorf("%q contains %U", got, r)
			}
		}
		if Printable(got) != got {
			t.Errorf("%q changes again", got)
		}
		// JSON keeps its meaning.
		data, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal([]byte(Printable(string(data))), &back); err != nil || back != strings.ToValidUTF8(text, "\ufffd") && !strings.ContainsRune(back, '\ufffd') {
			t.Errorf("%q: %q, %v", text, back, err)
		}
	})
}
