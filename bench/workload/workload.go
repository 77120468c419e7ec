// Package workload contains the lists of jobs that benchmarks submit to a scheduler.
//
// A list is a file with one JSON object per line (jobs.jsonl). Two benchmarks have the same workload if the hashes of these files are
// equal.
package workload

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"time"
)

// Job is a job of a workload. Times are in seconds. A number that is 0 in the file gets the default in the comment of its field.
type Job struct {
	ID      string   `json:"id"`
	Submit  float64  `json:"submit"`           // when the job is submitted, from the start of the trial
	Nodes   int      `json:"nodes,omitempty"`  // number of nodes; default: 1
	Tasks   int      `json:"tasks,omitempty"`  // number of processes, all nodes together; default: one per node
	CPUs    int      `json:"cpus,omitempty"`   // processors of each task; default: 1
	Memory  int      `json:"memory,omitempty"` // MiB of memory of each task; 0: the job requests no memory
	Runtime float64  `json:"runtime"`          // how long each task runs
	Limit   float64  `json:"limit,omitempty"`  // time limit that the job requests; 0: none
	User    string   `json:"user,omitempty"`   // user account that owns the job, with SLURM only; empty: the account of the player
	Queue   string   `json:"queue,omitempty"`  // the partition or queue of the scheduler; empty: the scheduler's default
	Gang    bool     `json:"gang,omitempty"`   // all tasks must start together
	After   []string `json:"after,omitempty"`  // ids of jobs that must have ended before the job is submitted
	Think   float64  `json:"think,omitempty"`  // time from the end of these jobs until the job is submitted
	// Drawn means that Submit is a random time of the arrivals of the workload, which each block of a sweep draws again.
	Drawn bool `json:"drawn,omitempty"`
}

var idForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// Seconds returns a duration in seconds as a time.Duration.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// maxJobs is the maximum number of jobs of a workload. It limits the memory that a workload needs.
const maxJobs = 1_000_000

// Read reads a list of jobs, sets defaults, and checks the jobs. It returns them in the order of submission.
func Read(r io.Reader) ([]Job, error) {
	jobs, err := scan(r, func(line []byte) (Job, bool, error) {
		j, err := Decode(line)
		return j, true, err
	})
	if err != nil {
		return nil, err
	}
	return Prepare(jobs)
}

func Decode(text []byte) (j Job, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(&j)
	return j, err
}

// scan reads the lines of a file with jobs. parse returns the job of a line, false if the line has none, and
// io.EOF if no further line counts.
func scan(r io.Reader, parse func(line []byte) (j Job, ok bool, err error)) (out []Job, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		j, ok, err := parse(line)
		if err == io.EOF {
			break
		}
		if ok && len(out) == maxJobs {
			err = fmt.Errorf("a workload has at most %d jobs", maxJobs)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if ok {
			out = append(out, j)
		}
	}
	return out, lines.Err()
}

// Prepare sets the defaults of jobs, sorts the jobs by their time of submission, and checks all jobs.
func Prepare(jobs []Job) ([]Job, error) {
	if len(jobs) == 0 {
		return nil, fmt.Errorf("the workload has no jobs")
	}
	jobs = slices.Clone(jobs)
	for i := range jobs {
		j := &jobs[i]
		j.Nodes = max(j.Nodes, 1)
		j.Tasks, j.CPUs = cmp.Or(j.Tasks, j.Nodes), cmp.Or(j.CPUs, 1)
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
	seen := map[string]bool{}
	for i, j := range jobs {
		if err := j.check(seen); err != nil {
			return nil, fmt.Errorf("job %d (%s): %w", i+1, j.ID, err)
		}
		seen[j.ID] = true
	}
	return jobs, nil
}

// check returns an error if the job is invalid. seen contains the ids of the jobs that are earlier in the list.
func (j Job) check(seen map[string]bool) error {
	isTime := func(t float64) bool { return t >= 0 && t <= 366*86400 && !math.IsNaN(t) }
	switch {
	case !idForm.MatchString(j.ID):
		return fmt.Errorf("an id has 1 to 40 of the characters a-z, 0-9 and -, and neither begins nor ends with -")
	case seen[j.ID]:
		return fmt.Errorf("there are two jobs with this id")
	case !isTime(j.Submit), !isTime(j.Runtime), !isTime(j.Limit), !isTime(j.Think):
		return fmt.Errorf("submit (%v), runtime (%v), limit (%v) and think (%v) must be between 0 and a year of seconds", j.Submit, j.Runtime, j.Limit, j.Think)
	case j.Think > 0 && len(j.After) == 0:
		return fmt.Errorf("think (%v) needs a job in `after`, from whose end it counts", j.Think)
	case j.Limit > 0 && j.Limit <= j.Runtime:
		return fmt.Errorf("limit (%v) must be more than runtime (%v)", j.Limit, j.Runtime)
	case j.Tasks < j.Nodes:
		return fmt.Errorf("%d tasks cannot use %d nodes", j.Tasks, j.Nodes)
	case j.CPUs < 0 || j.Memory < 0:
		return fmt.Errorf("cpus (%d) and memory (%d) must not be negative", j.CPUs, j.Memory)
	}
	for _, a := range j.After {
		if !seen[a] {
			return fmt.Errorf("no job before it has the id %s, which `after` names", a)
		}
	}
	return nil
}

// Like reports whether two jobs differ only in their ids and their times of submission, and wait for no other job. Such jobs can be one
// array.
func (j Job) Like(other Job) bool {
	return j.Nodes == other.Nodes && j.Tasks == other.Tasks && j.CPUs == other.CPUs && j.Memory == other.Memory && j.Runtime == other.Runtime && j.Limit == other.Limit &&
		j.Queue == other.Queue && j.User == other.User && j.Gang == other.Gang && len(j.After) == 0 && len(other.After) == 0
}

// Encode returns the content of the file for a list of jobs that [Prepare] has returned.
func Encode(jobs []Job) []byte {
	var b bytes.Buffer
	for _, j := range jobs {
		line, _ := json.Marshal(j) // cannot fail: Prepare accepts only finite numbers
		b.Write(append(line, '\n'))
	}
	return b.Bytes()
}

// Hash returns a hash that identifies a list of jobs.
func Hash(jobs []Job) string { return HashOf(Encode(jobs)) }

// HashOf returns `sha256:` and 64 hexadecimal digits.
func HashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Length returns how many seconds jobs take if each starts when it is submitted. They are a list that [Prepare] has returned.
func Length(jobs []Job) (length float64) {
	ends := map[string]float64{}
	for _, j := range jobs {
		at := j.Submit
		for _, a := range j.After {
			at = max(at, ends[a]+j.Think)
		}
		ends[j.ID] = at + j.Runtime
		length = max(length, ends[j.ID])
	}
	return length
}

func Tasks(jobs []Job) int {
	n := 0
	for _, j := range jobs {
		n += j.Tasks
	}
	return n
}
