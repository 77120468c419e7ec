package activate

import (
	"context"
	"embed"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/lines"
	"github.com/nixbench/nixbench/deploy/remote"
)

// Host connects to a node. *remote.Host implements it.
type Host interface {
	Conn(ctx context.Context) (*remote.Conn, error)
	Fresh(ctx context.Context) (*remote.Conn, error)
}

// The shell script that runs on the node consists of these parts. The part main is the last, because it calls the functions of the
// other parts. A command gets only the parts that it needs, because the shell on the node takes 3 ms of processor time to read all.
var (
	//go:embed sh
	parts embed.FS

	nodeScript       = joinParts("base", "inspect", "call", "stable", "reach", "run", "client", "main")
	inspectionScript = joinParts("base", "inspect", "main")
	followScript     = joinParts("base", "inspect", "client", "main")
)

func joinParts(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		text, _ := parts.ReadFile("sh/" + name + ".sh") // never fails
		b.Write(text)
	}
	return b.String()
}

// selectScript returns the parts of the shell script that a command of it, such as `inspect`, needs on the node.
func selectScript(command string) string {
	switch command {
	case "inspect":
		return inspectionScript
	case "follow", "confirm", "confirm-again", "confirm-return", "abort":
		return followScript
	}
	return nodeScript
}

// readCommand is a bash command that reads the shell script from stdin and executes it. Its first argument is the length of the
// script in bytes. It keeps the script in the variable `script`, because the command `start` of the script stores it for the
// systemd unit of the run. With -N, bash reads many bytes at a time.
const readCommand = `LC_ALL=C
read -rN "$1" script && shift && eval "$script"`

// longestLine is the maximal length of a line of output in bytes. The rest of a longer line is dropped.
const longestLine = 64 << 10

// scriptArgv returns the command line of a shell that reads the script from its stdin and executes it with args.
func scriptArgv(script string, args []string) []string {
	return append([]string{"bash", "-c", readCommand, "nixbench", strconv.Itoa(len(script))}, args...)
}

// executeScript runs the shell script on the node with args, the first of which is a command such as `inspect`. It calls each for
// every line of the output. The script is passed on stdin, because sudo writes arguments to its log.
func executeScript(ctx context.Context, conn *remote.Conn, each func(line string), args ...string) error {
	script := selectScript(args[0])
	out := &lines.Writer{Max: longestLine, Each: func(line string) { each(strings.ToValidUTF8(line, "�")) }}
	err := conn.Run(ctx, remote.Cmd{Argv: scriptArgv(script, args), Name: commandName(args), Stdin: strings.NewReader(script), Stdout: out, Sudo: true})
	out.Flush()
	return err
}

// commandName returns the name of a command of the shell script, for errors. It leaves out the shell that runs the script and the
// arguments, because a long command line would hide what the node has printed.
func commandName(args []string) string { return "nixbench-activate " + args[0] }

// unarmedPatience is how long the node waits for systemd jobs that make no progress, if no rollback is armed.
const unarmedPatience = time.Minute

func parseInt(s string) int {
	n, _ := strconv.Atoi(strings.TrimSpace(s))
	return n
}

// parseTime converts a number of seconds since the epoch to a time. The maximum is in the year 9999, the last year that JSON can
// contain.
func parseTime(s string) time.Time {
	return time.Unix(int64(min(max(0, parseInt(s)), 253402214400)), 0)
}

func parseSeconds(s string) time.Duration { return time.Duration(parseInt(s)) * time.Second }

// wholeSeconds formats a duration as a number of seconds. It rounds up, so that only a zero duration becomes 0.
func wholeSeconds(d time.Duration) string {
	return strconv.Itoa(int((d + time.Second - 1) / time.Second))
}
