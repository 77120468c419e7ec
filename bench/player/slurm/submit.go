package slurm

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"al.essio.dev/pkg/shellescape"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// maxCommands is the maximum number of sbatch commands in one script. The player knows the ids of the jobs only when the script
// ends, so a long script delays the events.
const maxCommands = 100

// command is an sbatch command. It submits a job, or several equal jobs as a job array.
type command = []workload.Job

// commands divides jobs, in their order, into at most maxCommands sbatch commands for the first of them.
func commands(jobs []workload.Job, arraySize int) []command {
	all := player.Arrays(jobs[:min(len(jobs), maxCommands*arraySize)], func(workload.Job) int { return arraySize })
	return all[:min(len(all), maxCommands)]
}

// taskID returns the id in SLURM of the job with number job in the command. id is what sbatch has printed for the command.
func taskID(c command, id string, job int) string {
	if len(c) == 1 {
		return id
	}
	return id + "_" + strconv.Itoa(job+1)
}

// arguments returns the arguments of sbatch for a command. They do not include the dependencies, and the arguments that are the
// same for all jobs.
func arguments(c command) []string {
	j := c[0]
	args := []string{"--nodes=" + strconv.Itoa(j.Nodes), "--ntasks=" + strconv.Itoa(j.Tasks), "--cpus-per-task=" + strconv.Itoa(j.CPUs)}
	if j.Limit > 0 { // SLURM counts in minutes
		args = append(args, "--time="+strconv.Itoa(int(math.Ceil(j.Limit/60))))
	}
	if j.Memory > 0 {
		perNode := (j.Tasks + j.Nodes - 1) / j.Nodes * j.Memory
		args = append(args, "--mem="+strconv.Itoa(perNode)+"M")
	}
	if j.Queue != "" {
		args = append(args, "--partition="+j.Queue)
	}
	args = append(args, "--uid="+cmp.Or(j.User, "nobody")) // sbatch runs as root, and slurmctld refuses jobs of root (DisableRootJobs)
	if len(c) > 1 {
		args = append(args, "--array=1-"+strconv.Itoa(len(c)))
	}
	return append(args, "--wrap="+program(j))
}

// slurmID is the expression of sh for the id in SLURM of the job that runs, as sbatch prints it.
const slurmID = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"

func program(j workload.Job) string {
	script := player.StampScript(slurmID, "$SLURM_PROCID", player.SleepCommand(j.Runtime), player.AppendStamps)
	if j.Tasks > 1 {
		return fmt.Sprintf("srun --cpus-per-task=%d sh -c %s", j.CPUs, shellescape.Quote(script))
	}
	return script
}

// prelude defines the functions of the script that submits jobs.
//
//go:embed submit.sh
var prelude string

// script returns the bash script that submits commands. idOf returns the id in SLURM of a job that an earlier script has
// submitted and that has not ended, or an empty string.
func script(cs []command, idOf func(job string) string) string {
	here := map[string]string{} // name of a job that this script submits → shell expression for its id in SLURM
	for i, c := range cs {
		for k, j := range c {
			here[j.ID] = fmt.Sprintf(`"${id%d:+%s}"`, i, taskID(c, fmt.Sprintf("${id%d}", i), k))
		}
	}
	var b strings.Builder
	b.WriteString(prelude)
	for i, c := range cs {
		fmt.Fprintf(&b, "submit %d %s", i, shellescape.QuoteCommand(arguments(c)))
		var after []string
		for _, a := range c[0].After {
			if id, ok := here[a]; ok {
				after = append(after, id)
			} else if id := idOf(a); id != "" {
				after = append(after, shellescape.Quote(id))
			}
		}
		if len(after) > 0 {
			fmt.Fprintf(&b, " $(dependency %s)", strings.Join(after, " "))
		}
		fmt.Fprintf(&b, "\nid%d=$id\n", i)
	}
	return b.String()
}

// answer is what sbatch has answered to a command: the id of the job, or an error.
type answer struct {
	id, refusal string
	at          time.Time // when sbatch started, on the clock of its node
}

// parseAnswers returns the answers in out, the output of a script for n sbatch commands, in the order of the commands.
func parseAnswers(out []byte, n int) ([]answer, error) {
	answers := make([]answer, n)
	for line := range bytes.Lines(out) {
		key, rest, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		at, text, _ := strings.Cut(rest, " ")
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= n {
			return nil, fmt.Errorf("unexpected line: %.100q", line)
		}
		if answers[i].at, err = player.ParseTime(at); err != nil {
			return nil, err
		}
		if refusal, ok := strings.CutPrefix(text, "!"); ok {
			answers[i].refusal = cmp.Or(strings.TrimPrefix(strings.TrimSpace(refusal), "sbatch: error: "), "sbatch failed")
			continue
		}
		if _, err := strconv.ParseUint(text, 10, 32); err != nil {
			return nil, fmt.Errorf("sbatch printed no job id: %.100q", text)
		}
		answers[i].id = text
	}
	if i := slices.Index(answers, answer{}); i >= 0 {
		return nil, fmt.Errorf("sbatch has not answered to command %d of %d", i+1, n)
	}
	return answers, nil
}
