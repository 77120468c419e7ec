package slurm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/workload"
)

// Play implements [player.Player]. Scripts with sbatch commands run one after the other: while one runs, jobs that become due wait and
// are submitted together by the next one. The events are sent at the end, when the clocks have been read again.
func (p *Player) Play(ctx context.Context, jobs []workload.Job, begin func() time.Time, send func(player.Event)) error {
	config, err := p.readConfig(ctx)
	if err == nil {
		err = checkLogLevel(config)
	}
	if err == nil {
		err = p.waitForClient(ctx)
	}
	place := p.Place()
	var controller, client player.Clock
	if err == nil {
		controller, err = p.ReadClock(ctx, place.Scheduler)
	}
	if client = controller; err == nil && place.Commands != place.Scheduler {
		client, err = p.ReadClock(ctx, place.Commands)
	}
	var cursor string
	if err == nil {
		cursor, err = p.logEnd(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	t := newTrial(jobs)
	err = p.follow(ctx, t, arraySize(config), begin(), cursor)
	onController := p.ReadClockAgain(ctx, place.Scheduler, controller)
	onClient := onController
	if place.Commands != place.Scheduler {
		var doubts []string
		onClient, doubts = player.ReadClockAgain(ctx, client, p.DateOn(place.Commands))
		p.Doubt(place.Commands, doubts...)
	}
	for _, e := range t.submissions {
		e.Time = onClient.Local(e.Time)
		send(e)
	}
	for _, e := range t.events {
		e.Time = onController.Local(e.Time)
		send(e)
	}
	return err
}

// submission is the answers to the commands of a script.
type submission struct {
	commands []command
	answers  []answer
}

// follow submits jobs and reads the log until all jobs have ended.
func (p *Player) follow(ctx context.Context, t *trial, arraySize int, start time.Time, cursor string) error {
	next, submitting := 0, false
	quiet := time.Now() // when the last event happened, or when the player last looked for missing events
	err := player.Loop{
		Poll: p.poll, Tasks: 1, Done: func() bool { return len(t.ended) == len(t.jobs) },
		Submit: func(now time.Time) (player.Task, time.Time) {
			last := next
			for last < len(t.jobs) && !due(t.jobs[last], start).After(now) {
				last++
			}
			if last == len(t.jobs) && next == last {
				return nil, now.Add(p.poll)
			} else if next == last {
				return nil, due(t.jobs[next], start)
			}
			cs, rest := commands(t.jobs[next:last], arraySize)
			text := script(cs, t.openID)
			next, submitting, quiet = last-len(rest), true, now
			return func() func() error {
				answers, err := p.submit(ctx, text, len(cs))
				return func() error {
					if submitting, quiet = false, time.Now(); err != nil {
						return fmt.Errorf("slurm: submit jobs: %w", err)
					}
					t.addAnswers(submission{cs, answers})
					return nil
				}
			}, now
		},
		Read: func() func() (func() error, error) {
			from, look := cursor, time.Since(quiet) > p.quiet
			return func() (func() error, error) {
				r, err := p.readNext(ctx, from, look)
				return func() error {
					cursor = r.cursor
					if t.addRecords(r.records) || look {
						quiet = time.Now()
					}
					if !look || submitting {
						return nil
					}
					return t.checkMissing(r.alive)
				}, err
			}
		},
		Last: func(ctx context.Context) {
			if records, _, err := p.readLog(ctx, cursor); err == nil {
				t.addRecords(records)
			}
		},
	}.Run(ctx)
	if err != nil {
		return err
	}
	return t.checkComplete()
}

// submit runs a script with commands and returns their answers.
func (p *Player) submit(ctx context.Context, script string, commands int) ([]answer, error) {
	out, err := p.RunLong(ctx, p.Place().Commands, strings.NewReader(script), "bash", "-s")
	if err != nil {
		return nil, err
	}
	return parseAnswers(out, commands)
}

// due returns the time at which a job is submitted.
func due(j workload.Job, start time.Time) time.Time {
	return start.Add(time.Duration(j.Submit * float64(time.Second)))
}

// reading is the result of a read of the log.
type reading struct {
	records []record
	cursor  string
	alive   map[string]bool // if the read looked for missing events: the ids of the jobs that had not ended before the log was read
}

// readNext reads the log. If look is set, it first lists the jobs that have not ended.
func (p *Player) readNext(ctx context.Context, cursor string, look bool) (r reading, err error) {
	if look {
		if r.alive, err = p.listJobs(ctx); err != nil {
			return r, err
		}
	}
	r.records, r.cursor, err = p.readLog(ctx, cursor)
	return r, err
}

// trial is the state of the jobs of Play.
type trial struct {
	jobs        []workload.Job
	submissions []player.Event      // submissions and refusals, with times of the clock of the node on which sbatch runs
	events      []player.Event      // with the times of the controller's clock
	jobsOf      map[string][]string // id in SLURM → names of the jobs; for the id of an array, all of its jobs
	idOf        map[string]string
	early       map[string][]record // id in SLURM → records of jobs whose ids sbatch has not printed yet, or which belong to other users
	seen        map[string]map[int]bool
	status      map[string]string // how a job has ended, before it has
	ended       map[string]bool
	missing     map[string]bool // jobs that the last call of checkMissing has found
}

func newTrial(jobs []workload.Job) *trial {
	return &trial{jobs: jobs, jobsOf: map[string][]string{}, idOf: map[string]string{}, early: map[string][]record{},
		seen: map[string]map[int]bool{}, status: map[string]string{}, ended: map[string]bool{}}
}

// openID returns the id in SLURM of a job that has not ended, or an empty string. SLURM refuses a dependency on a job that it has
// removed from its list, and it removes ended jobs.
func (t *trial) openID(job string) string {
	if t.ended[job] {
		return ""
	}
	return t.idOf[job]
}

// addAnswers stores the ids of jobs, and adds the events of their submission, and of refused ones.
func (t *trial) addAnswers(s submission) {
	for i, a := range s.answers {
		c := s.commands[i]
		for k, j := range c.jobs {
			t.submissions = append(t.submissions, player.Event{Time: a.at, Kind: player.Submit, Job: j.ID})
			if a.refusal != "" {
				t.ended[j.ID] = true
				t.submissions = append(t.submissions, player.Event{Time: a.at, Kind: player.Failed, Job: j.ID, Text: a.refusal})
				continue
			}
			id := c.taskID(a.id, k)
			t.idOf[j.ID] = id
			t.jobsOf[id] = []string{j.ID}
			if id != a.id {
				t.jobsOf[a.id] = append(t.jobsOf[a.id], j.ID)
			}
		}
		if a.id == "" {
			continue
		}
		t.addEarly(a.id)
		if len(c.jobs) > 1 {
			for k := range c.jobs {
				t.addEarly(c.taskID(a.id, k))
			}
		}
	}
}

func (t *trial) addEarly(id string) {
	records := t.early[id]
	delete(t.early, id)
	t.addRecords(records)
}

// addRecords adds the events of records. It reports whether a record belongs to a job of the workload.
func (t *trial) addRecords(records []record) bool {
	found := false
	for _, r := range records {
		jobs, ok := t.jobsOf[r.id]
		if !ok {
			t.early[r.id] = append(t.early[r.id], r)
			continue
		}
		found = true
		for _, job := range jobs {
			t.addRecord(job, r)
		}
	}
	return found
}

// addRecord adds the event of a record of a job, unless the job has had that event.
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
		t.add(player.Event{Time: r.at, Kind: player.Start, Job: job, Node: r.text})
	case status:
		t.status[job] = r.text
	case killed:
		t.fail(job, r.at, r.text)
	case ended:
		if text := t.status[job]; text != success && text != "" {
			t.fail(job, r.at, text)
			return
		}
		t.ended[job] = true
		t.add(player.Event{Time: r.at, Kind: player.Finish, Job: job})
	}
}

func (t *trial) add(e player.Event) { t.events = append(t.events, e) }

func (t *trial) fail(job string, at time.Time, text string) {
	t.ended[job] = true
	t.add(player.Event{Time: at, Kind: player.Failed, Job: job, Text: text})
}

// checkMissing returns an error if a job has ended and the log does not contain its end. alive has the ids of the jobs that had not ended
// before the log was read. The job must be missing twice, because a message takes some time until it is in the journal.
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

// checkComplete returns an error if the log did not contain all events of a finished job.
func (t *trial) checkComplete() error {
	for job, id := range t.idOf {
		if seen := t.seen[job]; seen[ended] && (!seen[created] || !seen[placed] && t.status[job] == success || !seen[status]) {
			return newMissingError(job, id)
		}
	}
	return nil
}

// newMissingError returns the error for a job whose events the log does not contain.
func newMissingError(job, id string) error {
	return fmt.Errorf("slurm: the journal of the controller does not contain all events of job %s (%s in SLURM): "+
		"the job was cancelled, or messages are missing; set LogRateLimitIntervalSec=0 for slurmctld.service, SlurmctldDebug=info, and no SlurmctldLogFile", job, id)
}
