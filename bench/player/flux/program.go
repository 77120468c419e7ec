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

type object map[string]any

// encodeJobs returns the file with jobs that program.py reads.
func encodeJobs(jobs []workload.Job) []byte {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for _, j := range jobs {
		_ = lines.Encode(struct { // cannot fail: the times are finite
			workload.Job
			Spec object `json:"spec"`
		}{j, jobspec(j)})
	}
	return b.Bytes()
}

// checkJobs returns an error if Flux cannot run a job as the workload describes it.
func checkJobs(jobs []workload.Job) error {
	for _, j := range jobs {
		if j.Memory > 0 {
			return fmt.Errorf("flux: job %s requests memory, and Flux allocates cores and nodes only; remove memory from the job", j.ID)
		}
		if j.User != "" {
			return fmt.Errorf("flux: job %s belongs to %s, and nixbench submits jobs as the owner of the instance only; remove user from the job", j.ID, j.User)
		}
	}
	return nil
}

// jobspec returns a job as a jobspec of version 1 (RFC 25 of Flux), as `flux submit` makes it from -N, -n and -c. If the tasks
// cannot be divided equally among the nodes, each node gets the same number of slots, and some slots remain empty.
func jobspec(j workload.Job) object {
	resource := object{"type": "slot", "label": "task", "count": (j.Tasks + j.Nodes - 1) / j.Nodes,
		"with": []object{{"type": "core", "count": j.CPUs}}}
	if j.Tasks > 1 {
		resource = object{"type": "node", "count": j.Nodes, "with": []object{resource}}
	}
	count := object{"per_slot": 1}
	if j.Tasks%j.Nodes != 0 {
		count = object{"total": j.Tasks}
	}
	command := []string{"sh", "-c", player.StampScript(j.ID, "${FLUX_TASK_RANK:-0}", player.SleepCommand(j.Runtime), player.AppendStamps)}
	system := object{"duration": j.Limit, "cwd": "/", "job": object{"name": jobName}} // the duration 0 is no limit
	if j.Queue != "" {
		system["queue"] = j.Queue
	}
	return object{
		"version":    1,
		"resources":  []object{resource},
		"tasks":      []object{{"command": command, "slot": "task", "count": count}},
		"attributes": object{"system": system},
	}
}
