package flux

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/engine"
)

//go:embed program.py
var program string

const (
	unit      = "nixbench-bench-flux.service"
	folder    = "/run/nixbench-bench-flux"
	jobsFile  = folder + "/jobs"
	startPipe = folder + "/start"
	linesFile = folder + "/lines"
	errorFile = folder + "/errors"
)

// stopScript stops the program and removes its files. It succeeds if there is no program.
const stopScript = `systemctl stop ` + unit + ` 2> /dev/null
if systemctl --quiet is-active ` + unit + `; then
	echo "` + unit + ` does not stop" >&2
	exit 1
fi
rm -rf ` + folder + "\n"

// runScript starts the program in a transient unit of systemd, because commands over SSH end with their connection. It runs as the owner of
// the instance: Flux accepts jobs of others, such as root, only with flux-security's program and MUNGE.
const runScript = `set -e
owner=$(flux getattr security.owner)
mkfifo -m 0600 ` + startPipe + `
chown "$owner" ` + startPipe + `
: > ` + linesFile + `
: > ` + errorFile + `
systemd-run --quiet --collect --unit=` + unit + ` --uid="$owner" --setenv=PATH --property=StandardOutput=append:` + linesFile + ` \
	--property=StandardError=append:` + errorFile + ` flux python ` + folder + `/program.py ` + jobsFile + " " + startPipe + "\n"

// setupTimeout is the time limit for the program to receive events.
const setupTimeout = 30 * time.Second

// startProgram starts the program and waits until it is ready.
func (p *Player) startProgram(ctx context.Context, jobs []workload.Job) error {
	ctx, cancel := context.WithTimeoutCause(ctx, setupTimeout, fmt.Errorf("the program that submits jobs is not ready after %v", setupTimeout))
	defer cancel()
	if _, err := p.runScript(ctx, stopScript+"mkdir -m 0755 "+folder+"\n"); err != nil {
		return fmt.Errorf("flux: stop the program that submits jobs: %w", err)
	}
	for file, content := range map[string][]byte{folder + "/program.py": []byte(program), jobsFile: encodeJobs(jobs)} {
		if _, err := p.run(ctx, bytes.NewReader(content), "sh", "-c", "cat > "+file); err != nil {
			return fmt.Errorf("flux: write %s: %w", file, err)
		}
	}
	if _, err := p.runScript(ctx, runScript); err != nil {
		return fmt.Errorf("flux: start the program that submits jobs: %w", err)
	}
	for {
		lines, _, err := p.readLines(ctx, 0)
		if len(lines) > 0 && lines[0].Ready {
			return nil
		}
		if err == nil {
			err = p.checkProgram(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if !engine.Sleep(ctx, p.poll) {
			return fmt.Errorf("flux: %w", context.Cause(ctx))
		}
	}
}

// begin gives the program the start of the workload, on the clock of the leader.
func (p *Player) begin(ctx context.Context, onNode time.Time) error {
	us := onNode.UnixMicro()
	if _, err := p.run(ctx, strings.NewReader(fmt.Sprintf("%d.%06d\n", us/1e6, us%1e6)), "sh", "-c", "cat > "+startPipe); err != nil {
		return fmt.Errorf("flux: begin the workload: %w", err)
	}
	return nil
}

// checkProgram returns an error if the program does not run. A check that does not reach the leader says nothing; the next read of lines reports it.
func (p *Player) checkProgram(ctx context.Context) error {
	ended, err := p.runScript(ctx, "systemctl --quiet is-active "+unit+" || echo ended\n")
	if err != nil || len(ended) == 0 {
		return nil
	}
	out, _ := p.run(ctx, nil, "tail", "--lines=1", errorFile)
	text := strings.TrimSpace(string(out))
	if text == "" {
		text = "it printed no error"
	}
	return fmt.Errorf("flux: the program that submits jobs has ended on the leader: %s", text)
}

// stopProgram stops the program. Clean reports an error.
func (p *Player) stopProgram(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRead)
	defer cancel()
	_, _ = p.runScript(ctx, stopScript)
}

// line is a line of the program, see program.py.
type line struct {
	Ready   bool
	Job     string
	ID      uint64
	Submit  float64
	Refused string
	Time    float64
	Event   string
	Nodes   string
	Context struct {
		Status   int    // of finish: as wait(2) returns it
		Type     string // of exception
		Severity int
		Note     string
	}
}

// readLines returns the lines after the first offset bytes, and the new offset.
func (p *Player) readLines(ctx context.Context, offset int) ([]line, int, error) {
	out, err := p.run(ctx, nil, "tail", "--bytes=+"+strconv.Itoa(offset+1), linesFile)
	if err != nil {
		return nil, offset, fmt.Errorf("flux: read the events: %w", err)
	}
	whole := out[:bytes.LastIndexByte(out, '\n')+1] // the last line may be incomplete
	var lines []line
	for text := range bytes.Lines(whole) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, offset, fmt.Errorf("flux: read the events: unexpected line %.100q: %w", text, err)
		}
		lines = append(lines, l)
	}
	return lines, offset + len(whole), nil
}

// timeOf returns the time of a number of seconds since the epoch, which has microseconds.
func timeOf(seconds float64) time.Time { return time.UnixMicro(int64(math.Round(seconds * 1e6))) }
