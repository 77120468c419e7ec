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

// watchUnit is the systemd unit that runs the watch of the pods. Its field Run is set later.
var watchUnit = player.Unit{Name: "nixbench-bench-watch.service", Folder: "/run/nixbench-bench"}

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
mkdir -m 0700 ` + watchUnit.Folder + `
cat > ` + watchUnit.Folder + `/program << 'END-OF-PROGRAM'
exec >> ` + watchUnit.File() + `
` + watchProgram(kubectl) + `END-OF-PROGRAM
: > ` + watchUnit.File() + `
systemd-run --quiet --collect --unit=` + watchUnit.Name + ` --setenv=PATH bash ` + watchUnit.Folder + "/program\n"
}

// startWatch starts the watch on the node that submits jobs. It returns when the watch has begun.
func (p *Player) startWatch(ctx context.Context) error {
	argv := p.kubectl("get", "pods", "--namespace="+namespace, "--selector="+benchLabel+"=1", "--watch", "--output-watch-events",
		"--output=jsonpath="+watchFields)
	if _, err := p.watch.RunScript(ctx, startScript(argv)); err != nil {
		return fmt.Errorf("kubernetes: start the watch: %w", err)
	}
	return p.watch.Begin(ctx, func(c change) bool { return c.pod == firstPodName })
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

func parseChange(line []byte) (change, error) {
	f := strings.Split(string(line), "|")
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
