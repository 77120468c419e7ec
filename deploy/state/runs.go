package state

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
)

// RunSummary is a line in the list of runs.
type RunSummary struct {
	ID      string          `json:"id"`
	Command string          `json:"command"`
	Status  Status          `json:"status"`
	Started time.Time       `json:"started"`
	Ended   *time.Time      `json:"ended,omitempty"`
	Exit    *int            `json:"exit,omitempty"`
	Nodes   map[Outcome]int `json:"nodes,omitempty"`
	Error   string          `json:"error,omitempty"` // why the record cannot be read, or what went wrong
}

// RunError says that there is no such run.
type RunError struct {
	Ref   string
	Among []string // runs that it could mean
}

func (e *RunError) Error() string {
	switch {
	case len(e.Among) > 0:
		return fmt.Sprintf("%q may be any of the runs %s", e.Ref, strings.Join(e.Among, ", "))
	case e.Ref == "last":
		return "there are no runs yet"
	}
	return fmt.Sprintf("there is no run %q", e.Ref)
}

// Hint says what to do about it.
func (e *RunError) Hint() string {
	if len(e.Among) == 0 && e.Ref == "last" {
		return "nixbench apply makes one"
	}
	return "nixbench runs lists them"
}

// So begin the names of runs that are being removed, or made.
const (
	gone  = ".gone-"
	fresh = ".new-"
)

// What has another name is not ours, and neither listed nor pruned.
var runRE = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z(-[a-z0-9-]+)?$`)

// runIDs gives the runs' identifiers.
func (d Dir) runIDs() ([]string, error) {
	entries, err := os.ReadDir(d.runsDir())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &FolderError{d, err}
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && runRE.MatchString(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// newest orders runs. Identifiers tell the second; within one, the record does.
func newest(a, b *Run) int {
	second := func(r *Run) string { return r.ID[:min(len(r.ID), len("20060102T150405Z"))] }
	return cmp.Or(strings.Compare(second(b), second(a)), b.Started.Compare(a.Started), strings.Compare(b.ID, a.ID))
}

// all reads all records. Of those that cannot be read, errs says why.
func (d Dir) all() (runs []*Run, errs map[string]error, err error) {
	ids, err := d.runIDs()
	if err != nil {
		return nil, nil, err
	}
	holder, err := d.Holder()
	if err != nil {
		return nil, nil, err
	}
	errs = map[string]error{}
	for _, id := range ids {
		r, err := d.readRun(id, holder)
		if err == nil && r.Status() == StatusKilled {
			// Or begun since we asked who has the lock. Now that it has begun, its
			// process has the lock, or has written its end, or was killed.
			if holder, err = d.Holder(); err != nil {
				return nil, nil, err
			}
			r, err = d.readRun(id, holder)
		}
		if errors.Is(err, os.ErrNotExist) && !exists(d.runDir(id)) {
			continue // removed meanwhile
		}
		if err != nil {
			errs[id] = err
			r = &Run{ID: id, dir: d}
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, newest)
	return runs, errs, nil
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

func (d Dir) readRun(id string, holder *Holder) (*Run, error) {
	file := filepath.Join(d.runDir(id), "run.json")
	data, err := durable.Read(file, durable.ConfigSize)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	r := &Run{}
	if err := decode(file, data, runVersion, nil, r); err != nil {
		return nil, err
	}
	if r.ID != id {
		return nil, &FileError{File: file, Err: fmt.Errorf("it is the record of %q", r.ID)}
	}
	r.dir = d
	r.running = r.Ended == nil && holder != nil && holder.same(r.Holder)
	return r, nil
}

// Runs lists the runs, the newest first. Records that cannot be read are in the
// list, with the reason.
func (d Dir) Runs() ([]RunSummary, error) {
	runs, errs, err := d.all()
	if err != nil {
		return nil, err
	}
	list := make([]RunSummary, len(runs))
	for i, r := range runs {
		list[i] = r.Summary()
		if err := errs[r.ID]; err != nil {
			list[i].Status, list[i].Error = StatusDamaged, err.Error()
		}
	}
	return list, nil
}

// Summary is the run in one line.
func (r *Run) Summary() RunSummary {
	s := RunSummary{ID: r.ID, Command: r.Command, Status: r.Status(), Started: r.Started, Ended: r.Ended, Exit: r.Exit, Error: r.Error}
	for _, n := range r.Nodes {
		if s.Nodes == nil {
			s.Nodes = map[Outcome]int{}
		}
		s.Nodes[n.Outcome]++
	}
	return s
}

// OpenRun gives the run with that identifier, the only one whose identifier begins
// so, or the `last` one.
func (d Dir) OpenRun(ref string) (*Run, error) {
	runs, errs, err := d.all()
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
		e := &RunError{Ref: ref}
		for _, r := range found {
			e.Among = append(e.Among, r.ID)
		}
		return nil, e
	}
	if err := errs[found[0].ID]; err != nil {
		return nil, err
	}
	return found[0], nil
}

// KeepRuns is how many runs are kept.
const KeepRuns = 100

// Prune removes all but the newest runs, keep of them and at least one. A run that
// the state speaks of stays: rollback may need it.
func (l *Lock) Prune(keep int) (removed []string, err error) {
	if err := l.held(); err != nil {
		return nil, err
	}
	s, err := l.dir.Load()
	if err != nil {
		return nil, err
	}
	runs, _, err := l.dir.all()
	if err != nil {
		return nil, err
	}
	used := s.runs()
	for i, r := range runs {
		if i < max(keep, 1) || used[r.ID] || r.running {
			continue
		}
		// Renamed first, so that a half-removed run is not taken for a damaged one.
		if err := os.Rename(l.dir.runDir(r.ID), l.dir.runDir(gone+r.ID)); err != nil {
			return removed, &FolderError{l.dir, err}
		}
		removed = append(removed, r.ID)
	}
	return removed, l.dir.sweepRuns()
}

func (d Dir) sweepRuns() error {
	entries, err := os.ReadDir(d.runsDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return &FolderError{d, err}
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), gone) || strings.HasPrefix(e.Name(), fresh) {
			if err := os.RemoveAll(d.runDir(e.Name())); err != nil {
				return &FolderError{d, err}
			}
		}
	}
	return nil
}
