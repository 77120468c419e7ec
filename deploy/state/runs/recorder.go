package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
)

// Recorder writes a run's record. A killed run loses the events of its last flushEvery.
type Recorder struct {
	lock   *state.Lock
	folder string
	most   int           // maximum size of the log lines and messages of a node, in bytes; further ones are not recorded
	stop   chan struct{} // closed to end writeUntilStopped
	failed error         // why events could not be written, and are lost

	mu      sync.Mutex
	run     Run
	changed bool           // the field run has changed since run.json was written
	events  []byte         // events that are not yet written to events.jsonl
	chatter map[string]int // by node: size of its log lines and messages so far, in bytes

	stopWriter func() // ends writeUntilStopped
}

const flushEvery = 500 * time.Millisecond

var notCommandRE = regexp.MustCompile(`[^a-z0-9]+`)

// Record creates the record of a new run. The process that executes the run must hold the lock l. The argument run has the
// Args, Hive, Scheduler, Revision and Nixbench of the run. Record removes secrets from them.
func Record(l *state.Lock, run Run) (*Recorder, error) {
	if err := l.CheckHeld(); err != nil {
		return nil, err
	}
	d := l.Dir()
	run.Version, run.Holder, run.Command, run.Started = version, l.Holder(), l.Holder().Command, time.Now().UTC()
	run.Args, run.Hive, run.Nodes = SafeArgs(run.Args), RemoveURLSecrets(run.Hive), []state.NodeResult{}
	run.ID = chooseID(d, run.Command, run.Started)
	r := &Recorder{
		lock: l, folder: runDir(d, "."+run.ID), run: run, changed: true,
		most: 64 << 20, stop: make(chan struct{}), chatter: map[string]int{},
	}
	err := r.flush()
	if err == nil { // rename the complete folder, so that a list of runs never contains a folder without run.json
		err = d.Error(os.Rename(r.folder, runDir(d, run.ID)))
	}
	if err != nil {
		return nil, err
	}
	r.folder = runDir(d, run.ID)
	var writer sync.WaitGroup
	writer.Go(r.writeUntilStopped)
	r.stopWriter = sync.OnceFunc(func() {
		close(r.stop)
		writer.Wait()
	})
	return r, nil
}

// chooseID returns an unused identifier for a run: the time and the command, and a number if necessary. Only the holder of the lock may
// call it, since other processes could choose the same identifier.
func chooseID(d state.Dir, command string, t time.Time) string {
	base := t.Format("20060102T150405Z") + "-" + strings.Trim(notCommandRE.ReplaceAllString(strings.ToLower(command), "-"), "-")
	base = strings.TrimSuffix(base[:min(len(base), 60)], "-")
	id := base
	for n := 2; durable.Exists(runDir(d, id)); n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	return id
}

func (r *Recorder) ID() string { return r.run.ID }

func (r *Recorder) RecordEvent(e event.Event) {
	line, _ := json.Marshal(e) // never fails
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case event.NodeLog, event.BuildLog, event.NodeProgress, event.Message:
		if r.chatter[e.Node] += len(line); e.Node != "" && r.chatter[e.Node] > r.most {
			return
		}
	case event.Answer:
		r.run.Answers += max(0, e.Time.Sub(e.Since).Seconds())
		r.changed = true
	}
	r.events = append(append(r.events, line...), '\n')
}

func (r *Recorder) Results() []state.NodeResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.run.Nodes)
}

// RecordResult records the run's result for a node. It replaces an earlier result of the same node.
func (r *Recorder) RecordResult(n state.NodeResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.run.Nodes, func(o state.NodeResult) bool { return o.Node == n.Node }); i >= 0 {
		r.run.Nodes[i] = n
	} else {
		r.run.Nodes = append(r.run.Nodes, n)
	}
	r.changed = true
}

// WriteFile writes another file of the record, in JSON: plan.json or changes.json.
func (r *Recorder) WriteFile(name string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return r.lock.Dir().Write(filepath.Join(r.folder, name), append(data, '\n'))
}

func (r *Recorder) writeUntilStopped() {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = r.flush() // End returns the error
		case <-r.stop:
			return
		}
	}
}

// flush writes the pending events, and run.json if the run has changed. Only one goroutine may call flush.
func (r *Recorder) flush() error {
	r.mu.Lock()
	events, run, changed := r.events, r.run, r.changed
	run.Nodes = slices.Clone(run.Nodes)
	r.events, r.changed = nil, false
	r.mu.Unlock()
	if err := appendTo(filepath.Join(r.folder, "events.jsonl"), events); err != nil && r.failed == nil {
		r.failed = fmt.Errorf("events are lost: %w", err)
	}
	if !changed {
		return r.failed
	}
	return errors.Join(r.failed, r.WriteFile("run.json", run))
}

func appendTo(file string, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// Discard ends the record and removes its folder. It is used if the run has done nothing.
func (r *Recorder) Discard() error {
	r.stopWriter()
	return r.lock.Dir().Error(os.RemoveAll(r.folder))
}

// End completes the record with the exit code and the cause of a failure. It returns an error if the record is incomplete.
func (r *Recorder) End(exit int, cause error) error {
	r.stopWriter()
	now := time.Now().UTC()
	r.mu.Lock()
	r.run.Ended, r.run.Exit, r.changed = &now, &exit, true
	if cause != nil {
		r.run.Error = cause.Error()
	}
	r.mu.Unlock()
	if err := r.flush(); err != nil {
		return fmt.Errorf("record of run %s: %w", r.run.ID, err)
	}
	return nil
}
