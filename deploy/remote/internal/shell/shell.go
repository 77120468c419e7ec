// Package shell converts an argument vector to the line that an SSH server
// passes to a login shell, and a line to an argument vector.
//
// A command is started by a small sh script that first prints its process id on stderr and stdout, and
// then executes the command:
//
//	exec sh -c 'announced="MARK:$$"; echo "$announced" >&2 && echo "$announced" && exec "$@"' sh cmd arg…
//
// If the command itself is a shell script (`sh -c` or `bash -c`), the printing is inserted in front of this script, so
// that only one shell is started:
//
//	exec bash -c 'announced="MARK:$$"; echo "$announced" >&2 && echo "$announced" || exit
//	SCRIPT' name arg…
//
// The printed line is the announcement. It contains the id of the process group to end when the command is cancelled (sshd does not end
// a cancelled command), and proves that the programs in front of the script, such as sudo, have started it. Text that the login shell
// prints is in front of the announcement, so such text is never interpreted as output of the command. If the command is cancelled while
// a slow login shell is still starting, the announcement fails and the command does not start. The line contains only words and single
// quotes, so the login shell need not be a POSIX shell. The first word is exec, so that the command is never interpreted as a keyword,
// an assignment or a builtin.
package shell

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"al.essio.dev/pkg/shellescape"
)

const (
	head   = `announced="`
	middle = `:$$"; echo "$announced" >&2 && echo "$announced" `
	tail   = middle + `&& exec "$@"`
	before = middle + "|| exit\n" // inserted before the script if the command is itself a script
)

// Announce returns the argv of a script that prints "mark:PID\n" on stderr and on stdout, and then executes
// argv with the same process id.
func Announce(mark string, argv []string) []string {
	if len(argv) > 2 && isShell(argv) {
		return slices.Concat(argv[:2], []string{head + mark + before + argv[2]}, argv[3:])
	}
	return append([]string{"sh", "-c", head + mark + tail, "sh"}, argv...)
}

// isShell reports whether argv executes a script that is its third word.
func isShell(argv []string) bool {
	return (argv[0] == "sh" || argv[0] == "bash") && argv[1] == "-c"
}

// Line returns a line for the login shell that executes argv with exec. It quotes the arguments.
func Line(argv []string) string {
	return "exec " + shellescape.QuoteCommand(argv)
}

// Check returns an error if argv cannot be run. A NUL byte cannot be passed to any
// program, and a first word with a dash would be an option of exec.
func Check(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return errors.New("no command given")
	}
	if strings.HasPrefix(argv[0], "-") {
		return fmt.Errorf("the program name %q starts with a dash", argv[0])
	}
	for i, arg := range argv {
		if strings.IndexByte(arg, 0) >= 0 {
			return fmt.Errorf("argument %d contains a NUL byte", i)
		}
	}
	return nil
}

// ParseLine is the inverse of Line and Announce, for test servers. It returns the command itself, the marks in the order
// in which the scripts print them, and the words between two scripts: the escalation command, or nil.
func ParseLine(line string) (argv, marks, escalation []string) {
	argv = split(strings.TrimPrefix(line, "exec "))
	for i := 0; i+3 <= len(argv); i++ {
		text, announces := strings.CutPrefix(argv[i+2], head)
		if !announces || !isShell(argv[i:]) {
			continue
		}
		mark, rest, _ := strings.Cut(text, middle)
		marks, escalation = append(marks, mark), append(escalation, argv[:i]...)
		if script, ok := strings.CutPrefix(middle+rest, before); ok { // the command itself is a script
			return slices.Concat(argv[i:i+2], []string{script}, argv[i+3:]), marks, escalation
		}
		argv, i = argv[i+4:], -1
	}
	return argv, marks, escalation
}

// wordPart matches a blank, or a part of a word: quoted or not.
var wordPart = regexp.MustCompile(`( )|'([^']*)'|"([^"]*)"|[^ '"]+`)

// split splits a line into the words that Line has joined.
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
