package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
)

// version is the format version of run.json.
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
	FlakeLock string             `json:"flakeLock,omitempty"` // hash of the hive's flake.lock
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
}

// Status is the status of a run.
type Status string

const (
	StatusRunning     Status = "running"
	StatusDone        Status = "done"
	StatusFailed      Status = "failed"
	StatusInterrupted Status = "interrupted"
	StatusKilled      Status = "killed"  // the process ended before it wrote the end of the run
	StatusDamaged     Status = "damaged" // the record of the run cannot be read
)

// Status returns the run's status. The status is StatusKilled if the record has no end and the run's
// process does not hold the lock.
func (r *Run) Status() Status {
	switch {
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

// Folder returns the folder of the run's files.
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

// Plan reads the run's plan. It returns nil if the run ended before it had written a plan.
func (r *Run) Plan() (json.RawMessage, error) { return r.readFile("plan") }

// Changes reads the recorded changes that the run made to the systems of its nodes. It returns nil if the run recorded no changes.
func (r *Run) Changes() (json.RawMessage, error) { return r.readFile("changes") }

// readFile reads the file NAME.json of the record. It returns nil if there is none.
func (r *Run) readFile(name string) (json.RawMessage, error) {
	data, err := durable.Read(filepath.Join(r.Folder(), name+".json"), durable.ConfigSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", r.ID, err)
	}
	return data, nil
}

// LogFile returns the path of node's log.
func (r *Run) LogFile(node string) string { return logPath(r.Folder(), node) }

// NodeLog opens node's log.
func (r *Run) NodeLog(node string) (io.ReadCloser, error) {
	f, _, err := durable.Open(r.LogFile(node))
	if err != nil {
		return nil, fmt.Errorf("run %s: log of %s: %w", r.ID, node, err)
	}
	return f, nil
}
