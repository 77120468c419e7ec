package runs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
)

// Summary describes a run in the list of runs.
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

// Took returns how long the run has worked, without the time in which it waited for answers. The bool is false if no end
// of the run is recorded.
func (s Summary) Took() (time.Duration, bool) {
	if s.Ended == nil {
		return 0, false
	}
	return max(0, s.Ended.Sub(s.Started)-time.Duration(s.Answers*float64(time.Second))), true
}

// newRefError returns the error for a reference to a run, such as `last`. If among is empty, the reference matches no
// run. Otherwise it matches all runs in among.
func newRefError(ref string, among []string) error {
	const list = "nixbench runs lists them"
	switch {
	case len(among) > 0:
		return failure.WithHint(failure.NewUsage("%q may be any of the runs %s", ref, strings.Join(among, ", ")), list)
	case ref == "last":
		return failure.WithHint(failure.NewUsage("there are no runs yet"), "nixbench apply makes one")
	}
	return failure.WithHint(failure.NewUsage("there is no run %q", ref), list)
}

// While a run's folder is being removed or created, its name has one of these prefixes.
const (
	removedPrefix = ".gone-"
	newPrefix     = ".new-"
)

// runRE matches the names of run folders. Folders with other names are neither listed nor pruned.
var runRE = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z(-[a-z0-9-]+)?$`)

// runIDs returns the identifiers of all runs.
func runIDs(d state.Dir) ([]string, error) {
	entries, err := os.ReadDir(runsDir(d))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &state.FolderError{Dir: d, Err: err}
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

// readRuns reads the records of all runs, the newest first. If the record of a run cannot be read, the Run has only an
// ID, and errs contains the error for this ID.
func readRuns(d state.Dir) (runs []*Run, errs map[string]error, err error) {
	ids, err := runIDs(d)
	if err != nil {
		return nil, nil, err
	}
	holder, err := d.Holder()
	if err != nil {
		return nil, nil, err
	}
	errs = map[string]error{}
	for _, id := range ids {
		r, err := readRun(d, id, holder)
		if err == nil && r.Status() == StatusKilled {
			// The run may have begun after the lock was checked. Check the lock again: the
			// run's process now holds the lock, or has written the run's end, or was killed.
			if holder, err = d.Holder(); err != nil {
				return nil, nil, err
			}
			r, err = readRun(d, id, holder)
		}
		if errors.Is(err, os.ErrNotExist) && !durable.Exists(runDir(d, id)) {
			continue // another process has removed the run
		}
		if err != nil {
			errs[id] = err
			r = &Run{ID: id, dir: d}
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, compareNewest)
	return runs, errs, nil
}

// readRun reads the record of a run. holder is the process that holds the lock, or nil. The run is active if holder is its process.
func readRun(d state.Dir, id string, holder *state.Holder) (*Run, error) {
	file := filepath.Join(runDir(d, id), "run.json")
	data, err := durable.Read(file, durable.ConfigSize)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	r := &Run{}
	if err := state.DecodeFile(file, data, version, r); err != nil {
		return nil, err
	}
	if r.ID != id {
		return nil, &state.FileError{File: file, Err: fmt.Errorf("it is the record of %q", r.ID)}
	}
	r.dir = d
	r.running = r.Ended == nil && holder != nil && holder.Is(r.Holder)
	return r, nil
}

// List returns a summary of each run, the newest first. If the record of a run cannot be read, the summary has the
// status StatusDamaged, and its Error is the reason.
func List(d state.Dir) ([]Summary, error) {
	runs, errs, err := readRuns(d)
	if err != nil {
		return nil, err
	}
	list := make([]Summary, len(runs))
	for i, r := range runs {
		list[i] = r.Summary()
		if err := errs[r.ID]; err != nil {
			list[i].Status, list[i].Error = StatusDamaged, err.Error()
		}
	}
	return list, nil
}

// Summary returns the run's summary for the list of runs.
func (r *Run) Summary() Summary {
	s := Summary{ID: r.ID, Command: r.Command, Status: r.Status(), Started: r.Started, Ended: r.Ended, Exit: r.Exit, Answers: r.Answers, Error: r.Error}
	for _, n := range r.Nodes {
		if s.Nodes == nil {
			s.Nodes = map[state.Outcome]int{}
		}
		s.Nodes[n.Outcome]++
	}
	return s
}

// Recent returns the summaries of this run and of earlier runs of the same command, the newest first. It returns at
// most as many as the argument most says.
func (r *Run) Recent(most int) ([]Summary, error) {
	runs, err := List(r.dir)
	if err != nil {
		return nil, err
	}
	runs = slices.DeleteFunc(runs, func(o Summary) bool { return o.Command != r.Command || o.Started.After(r.Started) })
	return runs[:min(most, len(runs))], nil
}

// Open returns the run that ref refers to. ref is the identifier of a run, an unambiguous prefix
// of an identifier, or `last`.
func Open(d state.Dir, ref string) (*Run, error) {
	runs, errs, err := readRuns(d)
	if err != nil {
		return nil, err
	}
	var found []*Run
	for _, r := range runs {
		if r.ID == ref {
			found = []*Run{r}
			break
		}
		if ref == "last" && len(found) == 0 || ref != "" && strings.HasPrefix(r.ID, ref) {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		var among []string
		for _, r := range found {
			among = append(among, r.ID)
		}
		return nil, newRefError(ref, among)
	}
	if err := errs[found[0].ID]; err != nil {
		return nil, err
	}
	return found[0], nil
}

// Keep is the number of runs that nixbench keeps.
const Keep = 100

// Prune removes the records of old runs and returns their identifiers. It keeps the newest `keep` runs (at least one).
// It also keeps every run that the state refers to, because a rollback may need the record of such a run.
func Prune(l *state.Lock, keep int) (removed []string, err error) {
	if err := l.CheckHeld(); err != nil {
		return nil, err
	}
	d := l.Dir()
	s, err := d.Load()
	if err != nil {
		return nil, err
	}
	runs, _, err := readRuns(d)
	if err != nil {
		return nil, err
	}
	used := s.Runs()
	for i, r := range runs {
		if i < max(keep, 1) || used[r.ID] || r.running {
			continue
		}
		// Rename the folder before it is removed, so that a partly removed run is not reported as damaged.
		if err := os.Rename(runDir(d, r.ID), runDir(d, removedPrefix+r.ID)); err != nil {
			return removed, &state.FolderError{Dir: d, Err: err}
		}
		removed = append(removed, r.ID)
	}
	return removed, removeUnfinished(d)
}

// removeUnfinished deletes the renamed folders of removed runs, and the folders of runs that were
// being removed or created when nixbench was killed.
func removeUnfinished(d state.Dir) error {
	entries, err := os.ReadDir(runsDir(d))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return &state.FolderError{Dir: d, Err: err}
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), removedPrefix) || strings.HasPrefix(e.Name(), newPrefix) {
			if err := os.RemoveAll(runDir(d, e.Name())); err != nil {
				return &state.FolderError{Dir: d, Err: err}
			}
		}
	}
	return nil
}

// FormerNames returns the state folders that the hive may have had under former names of its cluster. These are the
// folders beside d that record machines and whose last run read the same hive.
func FormerNames(d state.Dir, hive string) []state.Dir {
	entries, _ := os.ReadDir(filepath.Dir(string(d))) // only for a message, so errors are ignored
	var out []state.Dir
	for _, e := range entries {
		other := state.Dir(filepath.Join(filepath.Dir(string(d)), e.Name()))
		if !e.IsDir() || other == d {
			continue
		}
		recorded, err := other.Load()
		if err != nil || recorded.Cluster == nil {
			continue
		}
		if last, err := Open(other, "last"); err == nil && last.Hive == hive {
			out = append(out, other)
		}
	}
	return out
}
