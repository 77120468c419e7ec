package activate

import (
	"context"
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/remote"
)

// Host is how a node is reached. *remote.Host is one.
type Host interface {
	Conn(ctx context.Context) (*remote.Conn, error)
	Fresh(ctx context.Context) (*remote.Conn, error)
}

// The script, in the order in which sh reads it: functions first.
var (
	//go:embed sh/base.sh
	baseScript string
	//go:embed sh/inspect.sh
	inspectScript string
	//go:embed sh/call.sh
	callScript string
	//go:embed sh/stable.sh
	stableScript string
	//go:embed sh/run.sh
	runScript string
	//go:embed sh/client.sh
	clientScript string
	//go:embed sh/main.sh
	mainScript string

	nodeScript = baseScript + inspectScript + callScript + stableScript + runScript + clientScript + mainScript
)

// runFromStdin has the node run our script without storing it. The script is sh's stdin:
// in argv it would be in every log of sudo's.
func runFromStdin(ctx context.Context, conn *remote.Conn, each func(name, value string), args ...string) error {
	return executeScript(ctx, conn, []string{"sh", "-s", "--"}, args, each)
}

// install puts the script on the node, for the units of the run that it starts.
// start moves it to its place, if no other run is using that.
const install = `umask 022
mkdir -p /run/nixbench && mkdir -p -m 0700 /run/nixbench/activate && cd /run/nixbench/activate || exit 1
cat >script.$$ || exit 1
exec sh "$PWD/script.$$" "$@" </dev/null`

// runFromFile runs the script from a file on the node.
func runFromFile(ctx context.Context, conn *remote.Conn, each func(name, value string), args ...string) error {
	return executeScript(ctx, conn, []string{"sh", "-c", install, "sh"}, args, each)
}

// continuedLine is the name of what goes on the line before, where that was too long
// for one piece. No line of the script's is called so, and no name may be looked for
// in the middle of a switch's log.
const continuedLine = "…"

func executeScript(ctx context.Context, conn *remote.Conn, argv, args []string, each func(name, value string)) error {
	out := &remote.Lines{Each: func(line string, continued bool) {
		line = strings.ToValidUTF8(line, "�")
		if name, value, ok := strings.Cut(line, "="); continued {
			each(continuedLine, line)
		} else if ok {
			each(name, value)
		}
	}}
	err := conn.Run(ctx, remote.Cmd{Argv: slices.Concat(argv, args), Name: commandName(args), Stdin: strings.NewReader(nodeScript), Stdout: out, Sudo: true})
	out.Flush()
	return err
}

// commandName is a call of the script in an error: nobody wants to read the bootstrap.
func commandName(args []string) string {
	return "nixbench-activate " + strings.Join(strings.Fields(strings.Join(args, " ")), " ")
}

// unarmedPatience is how long the script waits for a job of systemd that makes no
// progress, where no rollback is armed.
const unarmedPatience = time.Minute

func parseInt(s string) int {
	n, _ := strconv.Atoi(strings.TrimSpace(s))
	return n
}

func parseSeconds(s string) time.Duration { return time.Duration(parseInt(s)) * time.Second }

// wholeSeconds rounds up, so that a short time does not become none.
func wholeSeconds(d time.Duration) string {
	return strconv.Itoa(int((d + time.Second - 1) / time.Second))
}
