package workload

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// SWFOptions say how a trace of jobs is scaled to a smaller cluster and a shorter time.
type SWFOptions struct {
	MaxJobs     int     `json:"traceJobs"`  // maximum number of jobs, from the beginning of the trace; 0: all
	CPUsPerNode int     `json:"traceCpus"`  // number of processors of each node of the cluster; 0: 1
	Compression float64 `json:"traceSpeed"` // factor by which all times are divided, so that the load stays the same; 0: 1
	// Users and Queues map numbers of users and queues in the trace to accounts and queues of the cluster. Jobs with another number have
	// none.
	Users  map[string]string `json:"traceUsers,omitempty"`
	Queues map[string]string `json:"traceQueues,omitempty"`
}

// Indices of the columns of the Standard Workload Format. The value -1 in a column means unknown.
const (
	swfNumber    = 0
	swfSubmit    = 1
	swfRuntime   = 3
	swfAllocated = 4
	swfRequested = 7
	swfTimeLimit = 8
	swfStatus    = 10
	swfUser      = 11
	swfQueue     = 14
	swfPreceding = 16
	swfThink     = 17
	swfColumns   = 18
)

// overrun is the number of seconds by which the time limit exceeds the run time of a job that has used all the time that it requested.
// Otherwise, such a job would fail.
const overrun = 60

// maxProcessors is the largest number of processors of a job of a trace.
const maxProcessors = 100_000_000

// ReadSWF reads a trace in the Standard Workload Format. The first job is submitted at 0. A job gets as many nodes as its processors
// need. It has one task per node, and each task has the same number of processors. The processors of a job are those that it requested.
// If the trace does not have this number, they are those that it was allocated. A job on several nodes is a gang. A job with a preceding
// job is submitted after the preceding job has ended. If the trace has its think time, it is submitted this time after that end, and
// its time of submission in the trace does not count.
//
// The time limit of a job is the time that it requested, or its run time and overrun if it ran longer than that. A job that requested no time has no
// limit. ReadSWF ignores memory.
func ReadSWF(r io.Reader, o SWFOptions) ([]Job, error) {
	o.Compression, o.CPUsPerNode = cmp.Or(o.Compression, 1), cmp.Or(o.CPUsPerNode, 1)
	if o.MaxJobs < 0 || o.CPUsPerNode < 0 || !(o.Compression > 0) || math.IsInf(o.Compression, 0) {
		return nil, fmt.Errorf("the number of jobs (%d), the processors of a node (%d) and the compression of time (%v) must be positive",
			o.MaxJobs, o.CPUsPerNode, o.Compression)
	}
	used, dropped := 0, 0           // numbers of jobs that can and cannot be used
	submits := map[string]float64{} // by the id of the job
	jobs, err := scan(r, func(line []byte) (j Job, ok bool, err error) {
		if o.MaxJobs > 0 && used == o.MaxJobs {
			return j, false, io.EOF
		}
		if line[0] == ';' {
			return j, false, nil
		}
		v, err := parseSWF(string(line))
		if err != nil {
			return j, false, err
		}
		if !isUsable(v) {
			dropped++
			return j, false, nil
		}
		used++
		j = o.job(v)
		if before, ok := submits[swfID(v[swfPreceding])]; ok && before <= j.Submit {
			j.After = []string{swfID(v[swfPreceding])}
			if v[swfThink] >= 0 {
				j.Submit, j.Think = before, v[swfThink]/o.Compression
			}
		}
		submits[j.ID] = j.Submit
		return j, true, nil
	})
	if err != nil {
		return nil, err
	}
	first := math.Inf(1)
	for _, j := range jobs {
		first = min(first, j.Submit)
	}
	for i := range jobs {
		jobs[i].Submit -= first
	}
	if jobs, err = Prepare(jobs); err != nil {
		return nil, fmt.Errorf("trace: %w (%d jobs have no time of submission, run time or processors, or are parts of jobs)", err, dropped)
	}
	return jobs, nil
}

// parseSWF returns the columns of a line of a trace, which describes a job. It returns an error unless all columns are valid numbers.
func parseSWF(line string) (v [swfColumns]float64, err error) {
	fields := strings.Fields(line)
	if len(fields) != swfColumns {
		return v, fmt.Errorf("a job of a trace has %d columns, not %d", swfColumns, len(fields))
	}
	for i, f := range fields {
		if v[i], err = strconv.ParseFloat(f, 64); err != nil || math.IsNaN(v[i]) || math.IsInf(v[i], 0) {
			return v, fmt.Errorf("column %d: %q is no number", i+1, f)
		}
	}
	if v[swfNumber] < 0 || v[swfNumber] > 1e15 || processors(v) > maxProcessors {
		return v, fmt.Errorf("the number of the job (%v) must not be negative, and it can have at most %d processors", v[swfNumber], maxProcessors)
	}
	return v, nil
}

// processors returns the number of processors of a job. It is 0 or negative if the number is unknown.
func processors(v [swfColumns]float64) float64 {
	if v[swfRequested] > 0 {
		return v[swfRequested]
	}
	return v[swfAllocated]
}

// isUsable reports whether a job of the trace has all columns that a workload needs. Parts of jobs that were interrupted do not count: the
// trace also contains the whole jobs.
func isUsable(v [swfColumns]float64) bool {
	return (v[swfStatus] < 2 || v[swfStatus] > 4) && v[swfSubmit] >= 0 && v[swfRuntime] >= 0 && processors(v) > 0
}

func (o SWFOptions) job(v [swfColumns]float64) Job {
	cpus := max(1, int(math.Ceil(processors(v))))
	nodes := (cpus + o.CPUsPerNode - 1) / o.CPUsPerNode
	j := Job{
		ID: swfID(v[swfNumber]), Submit: v[swfSubmit] / o.Compression, Runtime: v[swfRuntime] / o.Compression,
		Nodes: nodes, Tasks: nodes, CPUs: (cpus + nodes - 1) / nodes, Gang: nodes > 1,
		User: o.Users[fmt.Sprintf("%.0f", v[swfUser])], Queue: o.Queues[fmt.Sprintf("%.0f", v[swfQueue])],
	}
	if v[swfTimeLimit] > 0 {
		if j.Limit = v[swfTimeLimit] / o.Compression; j.Limit <= j.Runtime {
			j.Limit = j.Runtime + overrun
		}
	}
	return j
}

func swfID(number float64) string { return fmt.Sprintf("job-%.0f", number) }
