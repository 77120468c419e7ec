package kubernetes

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"al.essio.dev/pkg/shellescape"

	"github.com/nixbench/nixbench/bench/player"
)

const watchFolder = "/run/nixbench-bench"

// watchUnit is the systemd unit that runs the watch of the pods. Its field Run is set later.
var watchUnit = player.Unit{Name: "nixbench-bench-watch.service", Folder: watchFolder, File: watchFolder + "/pods"}

// watch is the kubectl command that watches the pods on the node that submits jobs.
type watch struct {
	player.Unit
	node string
}

// watchFields are the fields that kubectl prints for each change of a pod. In a line of the watch, they follow the time.
const watchFields = `{.type}|{.object.metadata.name}|{.object.metadata.labels.nixbench\.bench/job}|` +
	`{.object.metadata.annotations.batch\.kubernetes\.io/job-completion-index}|{.object.spec.nodeName}|{.object.status.phase}|` +
	`{.object.status.containerStatuses[0].state.terminated.exitCode}|{.object.status.reason}|{.object.metadata.creationTimestamp}{"\n"}`

// watchEnd is the type of the line that watchProgram prints when a watch has ended.
const watchEnd = "END"

// watchProgram returns a program of bash that writes the lines of the watch to stdout, with the times of the node's clock. The
// API server ends each watch after some time, and ends a watch whose client reads too slowly. So the program starts the next
// watch, which begins with the current state of all pods.
func watchProgram(kubectl []string) string {
	return `export LC_ALL=C
while :; do
	` + shellescape.QuoteCommand(kubectl) + ` 2> /dev/null | while IFS= read -r line; do printf '%s|%s\n' "$EPOCHREALTIME" "$line"; done
	printf '%s|` + watchEnd + `||||||||\n' "$EPOCHREALTIME"
	sleep 0.1
done
`
}

// startScript returns the script that starts the watch in a transient systemd unit, because a command over SSH ends with its
// connection. The program of the watch is in a file, because systemd expands variables in arguments.
func startScript(kubectl []string) string {
	return watchUnit.StopScript() + `set -e
mkdir -m 0700 ` + watchFolder + `
cat > ` + watchFolder + `/program << 'END-OF-PROGRAM'
exec >> ` + watchUnit.File + `
` + watchProgram(kubectl) + `END-OF-PROGRAM
: > ` + watchUnit.File + `
systemd-run --quiet --collect --unit=` + watchUnit.Name + ` --setenv=PATH bash ` + watchFolder + "/program\n"
}

// start starts the watch on the node that submits jobs. kubectl returns the command line of kubectl with arguments.
func (w *watch) start(ctx context.Context, kubectl func(args ...string) []string) error {
	argv := kubectl("get", "pods", "--namespace="+namespace, "--selector="+benchLabel+"=1", "--watch", "--output-watch-events",
		"--output=jsonpath="+watchFields)
	if _, err := w.RunScript(ctx, startScript(argv)); err != nil {
		return fmt.Errorf("kubernetes: start the watch: %w", err)
	}
	return nil
}

// check returns an error if the watch does not run.
func (w *watch) check(ctx context.Context) error {
	if _, err := w.Run(ctx, nil, "systemctl", "--quiet", "is-active", w.Name); err != nil {
		return fmt.Errorf("kubernetes: %s has ended on %s: %w", w.Name, w.node, err)
	}
	return nil
}

// change is a line of the watch: the new state of a pod, or the end of a watch.
type change struct {
	at      time.Time // when the watch received the change, by the clock of its node
	ended   bool      // true: the watch has ended, and the line is about no pod
	deleted bool
	pod     string
	job     string
	task    int // number of the task: the completion index of the pod, plus 1
	node    string
	phase   string
	text    string    // why the pod has failed
	created time.Time // when the pod was created, in whole seconds of the API server's clock
}

// waitScript waits until the file $1 has more than $2 bytes, at most for a second. tail wakes up when the file grows.
const waitScript = `exec 3< <(exec tail --follow --bytes=+$(($2 + 1)) "$1")
tail=$!
read -r -t 1 -u 3 _
kill "$tail"
`

// wait waits for lines of the watch after the first offset bytes, at most for a second. The next read reports errors.
func (w *watch) wait(ctx context.Context, offset int) {
	_, _ = w.Run(ctx, nil, "bash", "-c", waitScript, "bash", w.File, strconv.Itoa(offset))
}

// read returns the lines of the watch after the first offset bytes, and the new offset.
func (w *watch) read(ctx context.Context, offset int) ([]change, int, error) {
	changes, next, err := player.ReadLines(ctx, w.Unit, offset, func(line []byte) (change, error) { return parseChange(string(line)) })
	if err != nil {
		return nil, offset, fmt.Errorf("kubernetes: read the watch: %w", err)
	}
	return changes, next, nil
}

// parseChange parses a line of the watch.
func parseChange(line string) (change, error) {
	f := strings.Split(line, "|")
	if len(f) != 10 {
		return change{}, fmt.Errorf("unexpected line %.100q", line)
	}
	at, err := player.ParseTime(f[0])
	if err != nil {
		return change{}, fmt.Errorf("a line without a time: %w", err)
	}
	c := change{at: at, ended: f[1] == watchEnd, deleted: f[1] == "DELETED", pod: f[2], job: f[3], task: 1, node: f[5], phase: f[6]}
	if f[4] != "" {
		index, err := strconv.Atoi(f[4])
		if err != nil || index < 0 || index == math.MaxInt {
			return change{}, fmt.Errorf("a line without a completion index: %.100q", line)
		}
		c.task = index + 1
	}
	if f[9] != "" {
		if c.created, err = time.Parse(time.RFC3339, f[9]); err != nil {
			return change{}, fmt.Errorf("a line without a time of creation: %.100q", line)
		}
	}
	switch {
	case f[8] != "":
		c.text = f[8]
	case f[7] != "":
		c.text = "exit status " + f[7]
	}
	return c, nil
}
