package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"al.essio.dev/pkg/shellescape"

	"github.com/nixbench/nixbench/bench/player"
)

const (
	watchUnit   = "nixbench-bench-watch.service"
	watchFolder = "/run/nixbench-bench"
	watchFile   = watchFolder + "/pods"
)

// watchFields are the fields of a line of the watch after its time.
const watchFields = `{.type}|{.object.metadata.name}|{.object.metadata.labels.nixbench\.bench/job}|` +
	`{.object.metadata.annotations.batch\.kubernetes\.io/job-completion-index}|{.object.spec.nodeName}|{.object.status.phase}|` +
	`{.object.status.containerStatuses[0].state.terminated.exitCode}|{.object.status.reason}|{.object.metadata.creationTimestamp}{"\n"}`

// stopScript stops the watch and removes its file. It succeeds if there is no watch.
const stopScript = `systemctl stop ` + watchUnit + ` 2> /dev/null
if systemctl --quiet is-active ` + watchUnit + `; then
	echo "` + watchUnit + ` does not stop" >&2
	exit 1
fi
rm -rf ` + watchFolder + "\n"

// watchEnd is the type of the line after a watch that has ended.
const watchEnd = "END"

// watchProgram returns the program of bash that writes the lines of a watch to stdout, with the times of the node's clock. The API server
// ends each watch after some time, and one whose client reads too slowly. The next one begins with the current state of all pods.
func watchProgram(kubectl []string) string {
	return `export LC_ALL=C
while :; do
	` + shellescape.QuoteCommand(kubectl) + ` 2> /dev/null | while IFS= read -r line; do printf '%s|%s\n' "$EPOCHREALTIME" "$line"; done
	printf '%s|` + watchEnd + `||||||||\n' "$EPOCHREALTIME"
	sleep 0.1
done
`
}

// startScript returns the script that starts the watch in a transient unit of systemd, because commands over SSH end with their
// connection. The program is in a file, because systemd expands variables in arguments.
func startScript(kubectl []string) string {
	return stopScript + `set -e
mkdir -m 0700 ` + watchFolder + `
cat > ` + watchFolder + `/program << 'END-OF-PROGRAM'
exec >> ` + watchFile + `
` + watchProgram(kubectl) + `END-OF-PROGRAM
: > ` + watchFile + `
systemd-run --quiet --collect --unit=` + watchUnit + ` --setenv=PATH bash ` + watchFolder + "/program\n"
}

// startWatch starts the watch of the pods.
func (p *Player) startWatch(ctx context.Context) error {
	kubectl, err := p.kubectl("get", "pods", "--namespace="+namespace, "--selector="+benchLabel+"=1", "--watch", "--output-watch-events",
		"--output=jsonpath="+watchFields)
	if err != nil {
		return err
	}
	if _, err := p.run(ctx, strings.NewReader(startScript(kubectl)), "sh", "-s"); err != nil {
		return fmt.Errorf("kubernetes: start the watch: %w", err)
	}
	return nil
}

// usageScript prints the file stat of each process of the watch.
const usageScript = `for d in /proc/[0-9]*; do
	while read -r group; do
		case $group in
			*/` + watchUnit + `)
				! read -r stat < "$d/stat" || printf '%s\n' "$stat"
				break ;;
		esac
	done < "$d/cgroup"
done 2> /dev/null
`

// stopWatch stops the watch, and adds what it has used. Clean reports an error.
func (p *Player) stopWatch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRead)
	defer cancel()
	out, _ := p.run(ctx, strings.NewReader(usageScript+stopScript), "sh", "-s")
	for line := range strings.Lines(string(out)) {
		if cpu, err := player.ParseStat(strings.TrimSpace(line), true); err == nil {
			p.watchCPU += cpu
		}
	}
}

// change is a line of the watch: the state of a pod.
type change struct {
	at      time.Time // on the clock of the node of the watch
	ended   bool      // the watch has ended; the line is about no pod
	deleted bool
	pod     string
	job     string
	task    int // the completion index and 1
	node    string
	phase   string
	text    string    // why the pod has failed
	created time.Time // in whole seconds, on the clock of the API server
}

// readWatch returns the lines of the watch after the first offset bytes, and the new offset.
func (p *Player) readWatch(ctx context.Context, offset int) ([]change, int, error) {
	out, err := p.run(ctx, nil, "tail", "--bytes=+"+strconv.Itoa(offset+1), watchFile)
	if err != nil {
		return nil, offset, fmt.Errorf("kubernetes: read the watch: %w", err)
	}
	whole := out[:bytes.LastIndexByte(out, '\n')+1] // the last line may be incomplete
	var changes []change
	for line := range bytes.Lines(whole) {
		c, err := parseChange(strings.TrimSuffix(string(line), "\n"))
		if err != nil {
			return nil, offset, fmt.Errorf("kubernetes: read the watch: %w", err)
		}
		changes = append(changes, c)
	}
	return changes, offset + len(whole), nil
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
