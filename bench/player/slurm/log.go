package slurm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	created = iota
	placed
	status // the exit status of the job; a record of the kind ended follows
	ended
	killed // the job has failed; no record of the kind ended follows
)

// record is a line in the log of slurmctld that is about a job.
type record struct {
	at   time.Time // on the clock of the controller
	kind int
	id   string // the id of a job, of an array, or of a task of an array, such as 4_1
	text string // the nodes of a placed job, or why a job has failed
}

// forms match the messages about jobs that slurmctld of SLURM 24.11 to 25.11 logs at the level info. In a message, a job is
// JobId=3, and a task of a job array is JobId=4_1(7), with its own job id in parentheses.
var forms = []struct {
	kind int
	form *regexp.Regexp
	text string // what precedes the text that form matches, in the text of the record
}{
	{created, regexp.MustCompile(`_slurm_rpc_submit_batch_job: JobId=(\S+) InitPrio=()`), ""},
	{placed, regexp.MustCompile(`sched: Allocate JobId=(\S+) NodeList=(\S+)`), ""},
	{placed, regexp.MustCompile(`_start_job: Started JobId=(\S+) in \S+ on (\S+)`), ""},
	{status, regexp.MustCompile(`_job_complete: JobId=(\S+) WEXITSTATUS (\d+)`), "exit status "},
	{status, regexp.MustCompile(`_job_complete: JobId=(\S+) WTERMSIG (\d+)`), "signal "},
	{status, regexp.MustCompile(`_job_complete: JobId=(\S+) (OOM failure)`), ""},
	{status, regexp.MustCompile(`_job_complete: JobId=(\S+) (cancelled by .*)`), ""},
	{ended, regexp.MustCompile(`_job_complete: JobId=(\S+) done()`), ""},
	{killed, regexp.MustCompile(`Time limit exhausted for JobId=(\S+)()`), "the time limit has passed"},
	{killed, regexp.MustCompile(`Killing JobId=(\S+) on (failed node \S+)`), ""},
}

// success is the text of the record status for a job without an error.
const success = "exit status 0"

// parseMessage returns the record in a message of slurmctld. The record has no time.
func parseMessage(message string) (record, bool) {
	if !strings.Contains(message, "JobId=") {
		return record{}, false
	}
	for _, f := range forms {
		if m := f.form.FindStringSubmatch(message); m != nil {
			id, _, _ := strings.Cut(m[1], "(")
			return record{kind: f.kind, id: strings.TrimSuffix(id, "_*"), text: f.text + m[2]}, true
		}
	}
	return record{}, false
}

// parseLog returns the records in the output of journalctl, and the cursor of the last journal entry. The cursor is empty if
// there is no entry.
func parseLog(out []byte) (records []record, cursor string, err error) {
	for line := range bytes.Lines(out) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e struct {
			Cursor   string          `json:"__CURSOR"`
			Received string          `json:"__REALTIME_TIMESTAMP"`
			Sent     string          `json:"_SOURCE_REALTIME_TIMESTAMP"` // only messages that come through syslog have it
			Message  json.RawMessage `json:"MESSAGE"`                    // an array of numbers if the message is no text
		}
		if err := json.Unmarshal(line, &e); err != nil || e.Cursor == "" {
			return nil, "", fmt.Errorf("journalctl printed %.100q", line)
		}
		cursor = e.Cursor
		var message string
		if json.Unmarshal(e.Message, &message) != nil {
			continue
		}
		r, ok := parseMessage(message)
		if !ok {
			continue
		}
		microseconds, err := strconv.ParseInt(cmp.Or(e.Sent, e.Received), 10, 64)
		if err != nil {
			return nil, "", fmt.Errorf("journalctl printed an entry without a time: %.100q", line)
		}
		r.at = time.UnixMicro(microseconds)
		records = append(records, r)
	}
	return records, cursor, nil
}

// readLog returns the records in slurmctld's journal after a position, and the position after the last entry. A position is an option of
// journalctl.
func (p *Player) readLog(ctx context.Context, position string) (records []record, next string, err error) {
	out, err := p.runOnController(ctx, "journalctl", "--quiet", "--no-pager", "--unit=slurmctld.service", "--output=json",
		"--output-fields=MESSAGE,_SOURCE_REALTIME_TIMESTAMP", position)
	last := ""
	if err == nil {
		records, last, err = parseLog(out)
	}
	if err != nil {
		return nil, position, fmt.Errorf("slurm: read the log of slurmctld: %w", err)
	}
	if last != "" {
		position = "--after-cursor=" + last
	}
	return records, position, nil
}
