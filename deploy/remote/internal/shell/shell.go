// Package shell converts an argument vector to the line that an SSH server
// passes to a login shell.
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
	"slices"
	"strings"

	"al.essio.dev/pkg/shellescape"
)

// The parts of the scripts. Package sshtest recognizes the scripts by them.
const (
	Head   = `announced="`
	Middle = `:$$"; echo "$announced" >&2 && echo "$announced" `
	tail   = Middle + `&& exec "$@"`
	Before = Middle + "|| exit\n" // inserted before the script if the command is itself a script
)

// Announce returns the argv of a script that prints "mark:PID\n" on stderr and on stdout, and then executes
// argv with the same process id.
func Announce(mark string, argv []string) []string {
	if len(argv) > 2 && IsShell(argv) {
		return slices.Concat(argv[:2], []string{Head + mark + Before + argv[2]}, argv[3:])
	}
	return append([]string{"sh", "-c", Head + mark + tail, "sh"}, argv...)
}

// IsShell reports whether argv executes a script that is its third word.
func IsShell(argv []string) bool {
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
