package sshtest

import (
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/remote/internal/shell"
)

// ParseLine is the inverse of [shell.Line] and [shell.Announce]. It returns the command itself, the marks in the order
// in which the scripts print them, and the words between two scripts: the escalation command, or nil.
func ParseLine(line string) (argv, marks, escalation []string) {
	argv = split(strings.TrimPrefix(line, "exec "))
	for i := 0; i+3 <= len(argv); i++ {
		text, announces := strings.CutPrefix(argv[i+2], shell.Head)
		if !announces || !shell.IsShell(argv[i:]) {
			continue
		}
		mark, rest, _ := strings.Cut(text, shell.Middle)
		marks, escalation = append(marks, mark), append(escalation, argv[:i]...)
		if script, ok := strings.CutPrefix(shell.Middle+rest, shell.Before); ok { // the command itself is a script
			return slices.Concat(argv[i:i+2], []string{script}, argv[i+3:]), marks, escalation
		}
		argv, i = argv[i+4:], -1
	}
	return argv, marks, escalation
}

// wordPart matches a blank, or a part of a word: quoted or not.
var wordPart = regexp.MustCompile(`( )|'([^']*)'|"([^"]*)"|[^ '"]+`)

// split splits a line into the words that [shell.Line] has joined.
func split(line string) []string {
	words := []string{""}
	for _, part := range wordPart.FindAllStringSubmatch(line, -1) {
		switch last := &words[len(words)-1]; part[0][0] {
		case ' ':
			words = append(words, "")
		case '\'', '"':
			*last += part[2] + part[3]
		default:
			*last += part[0]
		}
	}
	return words
}
