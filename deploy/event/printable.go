package event

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable returns text in which certain characters are escaped, because a terminal would execute them instead of showing them. These
// are control characters except newlines and tabs, and format characters, such as those that change the direction of text. An escape is
// \u and four hexadecimal digits, so the JSON of a value keeps its meaning. Bytes that are not UTF-8 become U+FFFD.
func Printable(text string) string {
	if strings.IndexFunc(text, isHidden) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !isHidden(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}

// blank contains the letters and marks that a terminal shows without any width.
const blank = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"

func isHidden(r rune) bool {
	return r != '\n' && r != '\t' && (!unicode.IsGraphic(r) || strings.ContainsRune(blank, r) || unicode.Is(unicode.Variation_Selector, r))
}
