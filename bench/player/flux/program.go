package flux

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

//go:embed program.py
var program string

const (
	folder    = "/run/nixbench-bench-flux"
	jobsFile  = folder + "/jobs"
	startPipe = folder + "/start"
)

// unit is the transient systemd unit in which program.py runs. Its field Run is set later.
var unit = player.Unit{Name: "nixbench-bench-flux.service", Folder: folder}

// runScript starts program.py on the leader in a transient systemd unit, because a command over SSH ends with its connection.
// program.py runs as the owner of the Flux instance. To accept jobs of other users, such as root, Flux would need the program of
// flux-security, and MUNGE.
var runScript = `set -e
owner=$(flux getattr security.owner)
mkfifo -m 0600 ` + startPipe + `
chown "$owner" ` + startPipe + `
: > ` + unit.File() + ` > ` + unit.ErrorFile() + `
systemd-run --quiet --collect --unit=` + unit.Name + ` --uid="$owner" --setenv=PATH --property=StandardOutput=append:` + unit.File() + ` \
	--property=StandardError=append:` + unit.ErrorFile() + ` flux python ` + folder + `/program.py ` + jobsFile + " " + startPipe + "\n"

// setupTimeout is how long program.py may take after its start until it receives events from Flux.
const setupTimeout = 30 * time.Second

// startProgram starts program.py on the leader, and waits until program.py receives events from Flux.
func (p *Player) startProgram(ctx context.Context, jobs []workload.Job) error {
	ctx, cancel := context.WithTimeoutCause(ctx, setupTimeout, fmt.Errorf("the program that submits jobs is not ready after %v", setupTimeout))
	defer cancel()
	if _, err := p.program.RunScript(ctx, unit.StopScript()+"mkdir -m 0755 "+folder+"\n"); err != nil {
		return fmt.Errorf("flux: stop the program that submits jobs: %w", err)
	}
	for file, content := range map[string][]byte{folder + "/program.py": []byte(program), jobsFile: encodeJobs(jobs)} {
		if _, err := p.Run(ctx, bytes.NewReader(content), "sh", "-c", "cat > "+file); err != nil {
			return fmt.Errorf("flux: write %s: %w", file, err)
		}
	}
	if _, err := p.program.RunScript(ctx, runScript); err != nil {
		return fmt.Errorf("flux: start the program that submits jobs: %w", err)
	}
	return p.program.Begin(ctx, func(l line) bool { return l.Ready })
}

// begin tells program.py at which time the workload starts. onNode is that time on the clock of the leader.
func (p *Player) begin(ctx context.Context, onNode time.Time) error {
	us := onNode.UnixMicro()
	if _, err := p.Run(ctx, strings.NewReader(fmt.Sprintf("%d.%06d\n", us/1e6, us%1e6)), "sh", "-c", "cat > "+startPipe); err != nil {
		return fmt.Errorf("flux: begin the workload: %w", err)
	}
	return nil
}

type line struct {
	Ready   bool
	Job     string
	ID      uint64
	Submit  float64
	Took    float64 // seconds that program.py needed to send the request
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

func parseLine(text []byte) (l line, err error) {
	if err = json.Unmarshal(text, &l); err != nil {
		err = fmt.Errorf("unexpected line %.100q: %w", text, err)
	}
	return l, err
}
