package export

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/nixbench/nixbench/bench"
)

// The states of a job in the Standard Workload Format.
const (
	swfUnknown   = -1
	swfFailed    = 0
	swfCompleted = 1
)

// SWF writes the jobs of a trial in the Standard Workload Format, version 2.2. In this format times are whole seconds, names are replaced
// by numbers, and -1 means unknown.
func SWF(w io.Writer, s bench.Sweep, t Trial, jobs []Job) error {
	jobs = slices.Clone(jobs)
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.submit(), b.submit()) })
	users, queues, numbers := map[string]int{}, map[string]int{}, map[string]int{}
	var userNames, queueNames []string
	enter := func(names map[string]int, list *[]string, name string) {
		if name != "" && names[name] == 0 {
			*list = append(*list, name)
			names[name] = len(*list)
		}
	}
	for i, j := range jobs {
		numbers[j.ID] = i + 1
		enter(users, &userNames, j.User)
		enter(queues, &queueNames, j.Queue)
	}

	b := bufio.NewWriter(w)
	writeHeader(b, s, t, len(jobs), queueNames, userNames)
	for i, j := range jobs {
		r := j.record()
		r[0] = i + 1
		r[11], r[14] = orUnknown(users[j.User]), orUnknown(queues[j.Queue])
		// The format allows only one preceding job. It is the job in After that ended last, because the job was submitted after
		// this end.
		var last *Job
		for _, id := range j.After {
			if n := numbers[id]; n > 0 && jobs[n-1].Ended != nil && (last == nil || *jobs[n-1].Ended > *last.Ended) {
				last = &jobs[n-1]
				r[16], r[17] = n, max(0, round(j.submit()-*last.Ended))
			}
		}
		for k, v := range r {
			if k > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprint(b, v)
		}
		b.WriteByte('\n')
	}
	return b.Flush()
}

// writeHeader writes the comments at the beginning of the file. The number of a queue or user is its position in queues or users, from 1.
func writeHeader(b io.Writer, s bench.Sweep, t Trial, jobs int, queues, users []string) {
	fmt.Fprintf(b, "; Version: 2.2\n; Computer: nixbench, cell %s\n; Note: sweep %s (%s), block %d, order %d, attempt %d, %s\n",
		oneLine(t.String()), oneLine(s.Name), oneLine(s.ID), t.Block, t.Number, t.Attempt.Number, t.Attempt.State)
	fmt.Fprintf(b, "; Note: times are rounded to seconds; trials/%d/%d/events.jsonl has the times in microseconds\n", t.Number, t.Attempt.Number)
	began, ended := t.Attempt.Began.UTC(), t.Attempt.Ended.UTC()
	fmt.Fprintf(b, "; MaxJobs: %d\n; MaxRecords: %d\n; Preemption: No\n; UnixStartTime: %d\n; TimeZoneString: UTC\n; StartTime: %s\n; EndTime: %s\n",
		jobs, jobs, began.Unix(), began.Format(time.UnixDate), ended.Format(time.UnixDate))
	if len(queues) > 0 {
		fmt.Fprintf(b, "; MaxQueues: %d\n", len(queues))
	}
	for i, q := range queues {
		fmt.Fprintf(b, "; Queue: %d %s\n", i+1, oneLine(q))
	}
	for i, u := range users {
		fmt.Fprintf(b, "; Note: user %d is %s\n", i+1, oneLine(u))
	}
}

// submit returns the time at which the job was submitted. If the job was not submitted, it returns the intended time of the workload.
func (j Job) submit() float64 {
	if j.Submitted != nil {
		return *j.Submitted
	}
	return j.Submit
}

// record returns the columns of the job's line. Columns that depend on other jobs, or on lists of names, are -1.
func (j Job) record() (r [18]int) {
	for i := range r {
		r[i] = swfUnknown
	}
	r[1] = max(0, round(j.submit()))
	if j.Started != nil {
		r[2] = max(0, round(*j.Started-j.submit()))
		r[4] = j.Tasks * j.CPUs
	}
	if j.Started != nil && j.Ended != nil {
		r[3] = max(0, round(*j.Ended-*j.Started))
	}
	r[7] = j.Tasks * j.CPUs
	if j.Memory > 0 && j.CPUs > 0 {
		r[9] = j.Memory * 1024 / j.CPUs // KiB of memory of each processor
	}
	switch {
	case j.Failed:
		r[10] = swfFailed
	case j.Ended != nil:
		r[10] = swfCompleted
	}
	return r
}

func round(seconds float64) int { return int(math.Round(seconds)) }

func orUnknown(n int) int {
	if n == 0 {
		return swfUnknown
	}
	return n
}
