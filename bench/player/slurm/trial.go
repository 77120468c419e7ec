package slurm

import (
	"fmt"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// trial is the state of the jobs during one call of Play.
type trial struct {
	jobs        []workload.Job
	place       player.Place
	queue       *player.Queue
	ahead       time.Duration       // by how much the clock of the controller is ahead
	events      []player.Event      // with times of the clock of the controller, or of the node on which sbatch runs
	jobsOf      map[string][]string // id in SLURM → names of the jobs; the id of a job array has all jobs of the array
	idOf        map[string]string
	early       []record // records of jobs whose ids sbatch has not printed yet, or of jobs of other users
	seen        map[string]map[int]bool
	status      map[string]string // job → how it has ended, known shortly before its end
	ended       map[string]bool
	missing     map[string]bool // jobs that the last call of checkMissing has found
	submissions player.Submissions
}

func newTrial(jobs []workload.Job, place player.Place) *trial {
	return &trial{jobs: jobs, place: place, jobsOf: map[string][]string{}, idOf: map[string]string{},
		seen: map[string]map[int]bool{}, status: map[string]string{}, ended: map[string]bool{}}
}

// jobOf returns the job with an id in SLURM, for [player.Measurement].
func (t *trial) jobOf(id string, task int) (string, int) {
	if jobs := t.jobsOf[id]; len(jobs) == 1 {
		return jobs[0], task
	}
	return "", 0
}

// openID returns the id in SLURM of a job that has not ended, or an empty string. A dependency on an ended job must be left out:
// SLURM removes ended jobs from its list, and refuses a dependency on a job that is not in the list.
func (t *trial) openID(job string) string {
	if t.ended[job] {
		return ""
	}
	return t.idOf[job]
}

// addAnswers stores the ids of submitted jobs, and adds the events of their submission. For refused jobs, it adds their failure.
func (t *trial) addAnswers(commands []command, answers []answer) {
	if n := len(answers); n > 1 { // the time of the last command is unknown
		t.submissions.Add(n-1, answers[n-1].at.Sub(answers[0].at))
	}
	for i, a := range answers {
		c := commands[i]
		for k, j := range c {
			t.events = append(t.events, player.Event{Time: a.at, Kind: player.Submit, Job: j.ID, Clock: t.place.Commands})
			if a.refusal != "" {
				t.end(j.ID, time.Now())
				t.events = append(t.events, player.Event{Time: a.at, Kind: player.Failed, Job: j.ID, Text: a.refusal, Clock: t.place.Commands})
				continue
			}
			id := taskID(c, a.id, k)
			t.idOf[j.ID] = id
			t.jobsOf[id] = []string{j.ID}
			if id != a.id {
				t.jobsOf[a.id] = append(t.jobsOf[a.id], j.ID)
			}
		}
	}
	early := t.early
	t.early = nil
	t.addRecords(early)
}

// addRecords adds the events of records in slurmctld's log. It reports whether a record belongs to a job of the workload.
func (t *trial) addRecords(records []record) bool {
	found := false
	for _, r := range records {
		jobs, ok := t.jobsOf[r.id]
		if !ok {
			t.early = append(t.early, r)
			continue
		}
		found = true
		for _, job := range jobs {
			t.addRecord(job, r)
		}
	}
	return found
}

// addRecord adds the event that a record in slurmctld's log describes, unless the job has already had that event.
func (t *trial) addRecord(job string, r record) {
	if t.ended[job] || t.seen[job][r.kind] {
		return
	}
	if t.seen[job] == nil {
		t.seen[job] = map[int]bool{}
	}
	t.seen[job][r.kind] = true
	switch r.kind {
	case created:
		t.add(player.Event{Time: r.at, Kind: player.Created, Job: job})
	case placed:
		t.add(player.Event{Time: r.at, Kind: player.Bound, Job: job, Node: r.text})
	case status:
		t.status[job] = r.text
	case killed:
		t.fail(job, r.at, r.text)
	case ended:
		if text := t.status[job]; text != success && text != "" {
			t.fail(job, r.at, text)
			return
		}
		t.end(job, r.at.Add(-t.ahead))
		t.add(player.Event{Time: r.at, Kind: player.Finish, Job: job})
	}
}

// add adds an event with a time of the controller's clock.
func (t *trial) add(e player.Event) {
	e.Clock = t.place.Scheduler
	t.events = append(t.events, e)
}

// end marks a job as ended. at is by the clock of this machine.
func (t *trial) end(job string, at time.Time) {
	t.ended[job] = true
	t.queue.End(job, at)
}

func (t *trial) fail(job string, at time.Time, text string) {
	t.end(job, at.Add(-t.ahead))
	t.add(player.Event{Time: at, Kind: player.Failed, Job: job, Text: text})
}

// checkMissing returns an error if a job has ended but the log does not contain its end. alive contains the ids of the jobs that had not
// ended before the log was read. A job must be missing in two calls, because a message takes some time to reach the journal.
func (t *trial) checkMissing(alive map[string]bool) error {
	before := t.missing
	t.missing = map[string]bool{}
	for job, id := range t.idOf {
		if t.ended[job] || alive[id] {
			continue
		}
		if before[job] {
			return newMissingError(job, id)
		}
		t.missing[job] = true
	}
	return nil
}

// checkComplete returns an error if the log does not contain all events of a job that has finished.
func (t *trial) checkComplete() error {
	for job, id := range t.idOf {
		if seen := t.seen[job]; seen[ended] && (!seen[created] || !seen[placed] && t.status[job] == success || !seen[status]) {
			return newMissingError(job, id)
		}
	}
	return nil
}

func newMissingError(job, id string) error {
	return fmt.Errorf("slurm: the journal of the controller does not contain all events of job %s (%s in SLURM): "+
		"the job was cancelled, or messages are missing; set LogRateLimitIntervalSec=0 for slurmctld.service, SlurmctldDebug=info, and no SlurmctldLogFile", job, id)
}
