package event

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Count returns a number with its noun: `1 node`, `3 nodes` or `2 processes`.
func Count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Size formats a number of bytes: `512 B` or `1.5 GiB`.
func Size[N int64 | uint64](n N) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if bytes := N(1) << (30 - 10*i); n >= bytes {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(bytes), unit)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// Growth formats a difference of sizes: `+1.9 MiB`.
func Growth(bytes int64) string {
	if bytes < 0 {
		return "-" + Size(-bytes)
	}
	return "+" + Size(bytes)
}

// Abbreviate joins at most six texts, and adds how many texts it has left out.
func Abbreviate(texts []string, separator string) string {
	const most = 6
	if len(texts) > most {
		return fmt.Sprintf("%s%sand %d more", strings.Join(texts[:most], separator), separator, len(texts)-most)
	}
	return strings.Join(texts, separator)
}

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
