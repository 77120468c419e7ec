package runs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/state"
)

const version = 2

// Run is the record of one apply, or of another command that changes nodes.
type Run struct {
	Version   int                `json:"version"`
	ID        string             `json:"id"`
	Command   string             `json:"command"`
	Args      []string           `json:"args"` // the arguments of nixbench, without secrets; see [SafeArgs]
	Hive      string             `json:"hive"`
	Scheduler string             `json:"scheduler,omitempty"` // the scheduler that the hive or --set chose
	Revision  string             `json:"revision,omitempty"`  // git revision of the hive
	Nixbench  string             `json:"nixbench"`            // version of nixbench
	Holder    state.Holder       `json:"holder"`              // the process of the run
	Started   time.Time          `json:"started"`
	Ended     *time.Time         `json:"ended,omitempty"`
	Exit      *int               `json:"exit,omitempty"`
	Answers   float64            `json:"answers,omitempty"` // seconds in which the run waited for the user's answers
	Error     string             `json:"error,omitempty"`   // why the whole run failed
	Nodes     []state.NodeResult `json:"nodes"`

	dir     state.Dir
	running bool
	err     error // why the record cannot be read; the other fields but ID and dir are then empty
}

type Status string

const (
	StatusRunning     Status = "running"
	StatusDone        Status = "done"
	StatusFailed      Status = "failed"
	StatusInterrupted Status = "interrupted"
	StatusKilled      Status = "killed"  // the process ended before it wrote the end of the run
	StatusDamaged     Status = "damaged" // the record of the run cannot be read
)

// Status returns the run's status: StatusKilled if the record has no end and the run's process does not hold the lock.
func (r *Run) Status() Status {
	switch {
	case r.err != nil:
		return StatusDamaged
	case r.running:
		return StatusRunning
	case r.Ended == nil || r.Exit == nil:
		return StatusKilled
	case *r.Exit == 0:
		return StatusDone
	case *r.Exit == 130:
		return StatusInterrupted
	}
	return StatusFailed
}

func runsDir(d state.Dir) string           { return filepath.Join(string(d), "runs") }
func runDir(d state.Dir, id string) string { return filepath.Join(runsDir(d), id) }

// Cluster returns the name of the cluster, which is also the name of its state folder.
func (r *Run) Cluster() string { return filepath.Base(string(r.dir)) }

func (r *Run) Folder() string { return runDir(r.dir, r.ID) }

// Events reads the run's events. It skips damaged lines and returns their number, see [ReadEvents].
func (r *Run) Events() (events []event.Event, damaged int, err error) {
	f, _, err := durable.Open(filepath.Join(r.Folder(), "events.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("run %s: %w", r.ID, err)
	}
	defer f.Close()
	events, damaged, err = ReadEvents(f)
	if err != nil {
		return nil, 0, fmt.Errorf("run %s: events: %w", r.ID, err)
	}
	return events, damaged, nil
}

// Changes reads the changes that the run made to the systems of its nodes. It returns nil if the run recorded no changes.
func (r *Run) Changes() (groups []packages.Group, err error) {
	data, err := durable.Read(filepath.Join(r.Folder(), "changes.json"), durable.ConfigSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &groups)
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: changes.json: %w", r.ID, err)
	}
	return groups, nil
}

// ReadEvents reads events, one JSON object per line. It skips damaged lines and returns their number: the last line may
// be incomplete if the run was killed, and any line if the disk was full.
func ReadEvents(r io.Reader) (events []event.Event, damaged int, err error) {
	b := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := b.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			var e event.Event
			if json.Unmarshal(line, &e) != nil || e.Kind == "" {
				damaged++
			} else {
				events = append(events, e)
			}
		}
		if errors.Is(err, io.EOF) {
			return events, damaged, nil
		}
		if err != nil {
			return nil, damaged, err
		}
	}
}

// Logs returns what each node printed during a run, by the name of the node. Each line begins with its time.
func Logs(events []event.Event) map[string]string {
	logs := map[string]*strings.Builder{}
	for _, e := range events {
		if e.Kind != event.NodeLog {
			continue
		}
		if logs[e.Node] == nil {
			logs[e.Node] = &strings.Builder{}
		}
		for line := range strings.SplitSeq(strings.TrimRight(event.Printable(e.Text), "\n"), "\n") {
			fmt.Fprintf(logs[e.Node], "%s %s\n", e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), line)
		}
	}
	out := map[string]string{}
	for node, log := range logs {
		out[node] = log.String()
	}
	return out
}
