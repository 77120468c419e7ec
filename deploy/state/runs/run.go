// Package runs writes and reads the records of runs in the state folder of a cluster, `runs/<id>/`:
//
//	run.json      what was run, when, and the result of each node
//	plan.json     the plan of the run
//	changes.json  what the run changed in the systems of its nodes
//	events.jsonl  its events, which contain the output of the nodes
//
// The holder of the cluster's lock writes with a [Recorder]. [List] and [Open] read, and need no lock. If the process
// of a run is killed, only the end of the run is missing in the record.
package runs

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
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
	return slices.DeleteFunc(groups, func(g packages.Group) bool { return len(g.Nodes) == 0 || g.Diff == nil }), nil
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

// Log returns what a node printed during a run. Each line begins with its time.
func Log(events []event.Event, node string) string {
	var log strings.Builder
	for _, e := range events {
		if e.Kind != event.NodeLog || e.Node != node {
			continue
		}
		for line := range strings.SplitSeq(strings.TrimRight(event.Printable(e.Text), "\n"), "\n") {
			fmt.Fprintf(&log, "%s %s\n", e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), line)
		}
	}
	return log.String()
}

type Summary struct {
	ID      string                `json:"id"`
	Command string                `json:"command"`
	Status  Status                `json:"status"`
	Started time.Time             `json:"started"`
	Ended   *time.Time            `json:"ended,omitempty"`
	Exit    *int                  `json:"exit,omitempty"`
	Answers float64               `json:"answers,omitempty"` // seconds in which the run waited for the user's answers
	Nodes   map[state.Outcome]int `json:"nodes,omitempty"`   // the number of nodes with each outcome
	Error   string                `json:"error,omitempty"`   // the run's error, or why the record cannot be read
}

// Took returns how long the run has worked without waiting for answers, and whether its end is recorded.
func (s Summary) Took() (time.Duration, bool) {
	if s.Ended == nil {
		return 0, false
	}
	return max(0, s.Ended.Sub(s.Started)-time.Duration(s.Answers*float64(time.Second))), true
}

// runRE matches the names of run folders. Folders with other names are neither listed nor pruned.
var runRE = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z(-[a-z0-9-]+)?$`)

func runIDs(d state.Dir) ([]string, error) {
	entries, err := os.ReadDir(runsDir(d))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, d.Error(err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && runRE.MatchString(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// compareNewest orders runs for sorting, the newest first. It first compares the start times in the identifiers. These
// times are in whole seconds, so it then compares the recorded start times.
func compareNewest(a, b *Run) int {
	second := func(r *Run) string { return r.ID[:min(len(r.ID), len("20060102T150405Z"))] }
	return cmp.Or(strings.Compare(second(b), second(a)), b.Started.Compare(a.Started), strings.Compare(b.ID, a.ID))
}

// readRuns reads the records of all runs, the newest first. A record that cannot be read has the status StatusDamaged.
func readRuns(d state.Dir) (runs []*Run, err error) {
	ids, err := runIDs(d) // before the holder: a run that begins later is not in the list, and does not count as killed
	if err != nil {
		return nil, err
	}
	holder, err := d.Holder()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		r := readRun(d, id, holder)
		if errors.Is(r.err, os.ErrNotExist) && !durable.Exists(runDir(d, id)) {
			continue // another process has removed the run
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, compareNewest)
	return runs, nil
}

// readRun reads the record of a run. holder is the process that holds the lock, or nil. The run is active if holder is its process.
func readRun(d state.Dir, id string, holder *state.Holder) *Run {
	file := filepath.Join(runDir(d, id), "run.json")
	r := &Run{}
	data, err := durable.Read(file, durable.ConfigSize)
	if err == nil {
		err = state.DecodeFile(file, data, version, r)
	}
	if err == nil && r.ID != id {
		err = state.NewFileError(file, fmt.Errorf("it is the record of %q", r.ID), "")
	}
	if err != nil {
		return &Run{ID: id, dir: d, err: fmt.Errorf("run %s: %w", id, err)}
	}
	slices.SortFunc(r.Nodes, func(a, b state.NodeResult) int { return nixeval.CompareNatural(a.Node, b.Node) })
	r.dir, r.running = d, r.Ended == nil && holder != nil && *holder == r.Holder
	return r
}

// List returns a summary of each run, the newest first.
func List(d state.Dir) ([]Summary, error) {
	runs, err := readRuns(d)
	list := make([]Summary, len(runs))
	for i, r := range runs {
		list[i] = r.Summary()
	}
	return list, err
}

func (r *Run) Summary() Summary {
	s := Summary{ID: r.ID, Command: r.Command, Status: r.Status(), Started: r.Started, Ended: r.Ended, Exit: r.Exit, Answers: r.Answers, Error: r.Error}
	if r.err != nil {
		s.Error = r.err.Error()
	}
	for _, n := range r.Nodes {
		if s.Nodes == nil {
			s.Nodes = map[state.Outcome]int{}
		}
		s.Nodes[n.Outcome]++
	}
	return s
}

// Open returns the run that ref refers to: by its identifier, an unambiguous prefix of it, or `last`.
func Open(d state.Dir, ref string) (*Run, error) {
	runs, err := readRuns(d)
	if err != nil {
		return nil, err
	}
	if len(runs) == 0 && ref == "last" {
		return nil, failure.WithHint(failure.NewUsage("there are no runs yet"), "nixbench apply makes one")
	}
	var found []string
	var run *Run
	for _, r := range runs {
		if r.ID == ref || ref == "last" {
			found, run = nil, r
			break
		}
		if ref != "" && strings.HasPrefix(r.ID, ref) {
			found, run = append(found, r.ID), r
		}
	}
	const list = "nixbench runs lists them"
	switch {
	case run == nil:
		return nil, failure.WithHint(failure.NewUsage("there is no run %q", ref), list)
	case len(found) > 1:
		return nil, failure.WithHint(failure.NewUsage("%q may be any of the runs %s", ref, strings.Join(found, ", ")), list)
	case run.err != nil:
		return nil, run.err
	}
	return run, nil
}

// Keep is the number of runs that nixbench keeps.
const Keep = 100

// Prune removes the records of old runs. It keeps the newest `keep` runs (at least one). It also keeps every run that the state refers
// to, because a rollback may need the record of such a run.
func Prune(l *state.Lock, keep int) error {
	d := l.Dir()
	s, err := d.Load()
	if err != nil {
		return err
	}
	runs, err := readRuns(d)
	if err != nil {
		return err
	}
	used := s.Runs()
	for i, r := range runs {
		if i < max(keep, 1) || used[r.ID] || r.running {
			continue
		}
		// Rename the folder before it is removed, so that a partly removed run is not reported as damaged.
		err = errors.Join(err, os.Rename(runDir(d, r.ID), runDir(d, "."+r.ID)))
	}
	hidden, _ := filepath.Glob(runDir(d, ".*")) // also the folders of runs that were created or removed when nixbench was killed
	for _, folder := range hidden {
		err = errors.Join(err, os.RemoveAll(folder))
	}
	return err
}
