package event

import (
	"fmt"
	"strings"
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
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
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
