package batch

import (
	"fmt"
	"strings"
)

// LastLine returns the last line of an error, which contains the cause.
func LastLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return lines[len(lines)-1]
}

// Abbreviate joins at most six texts, and adds the number of the others.
func Abbreviate(texts []string) string {
	const most = 6
	if len(texts) > most {
		return fmt.Sprintf("%s; and %d more", strings.Join(texts[:most], "; "), len(texts)-most)
	}
	return strings.Join(texts, "; ")
}
