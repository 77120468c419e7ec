package runs

import (
	"bytes"
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

// Info contains the facts about a run that are known when the run begins.
type Info struct {
	Args      []string // the command line without the program's name
	Hive      string
	Scheduler string
	Revision  string
	FlakeLock string
	Nixbench  string
}

// Recorder writes a run's record. It writes events every second, and immediately when a phase
// or a node starts or ends. A killed run loses at most one second of events.
type Recorder struct {
	lock   *state.Lock
	folder string
	wake   chan struct{} // a value requests that runWriter writes immediately
	most   int           // maximum size of the log lines and messages of a node, in bytes; further ones are not recorded
	stop   chan struct{} // closed to end runWriter
	done   chan struct{} // closed when runWriter has ended

	mu      sync.Mutex
	run     Run
	changed bool                     // the field run has changed since run.json was written
	events  []byte                   // events that are not yet written to events.jsonl
	logs    map[string]*bytes.Buffer // by node: log lines that are not yet written to its log
	chatter map[string]int           // by node: size of its log lines and messages so far, in bytes
	lost    int                      // number of events that were dropped because the disk was full
	err     error                    // the first write error, while the record is incomplete
	closed  bool                     // End was called

	disk sync.Mutex // locked while files are written, so that lines are written in order
}

const (
	flushEvery = time.Second
	maxPending = 8 << 20 // maximum size of the unwritten events in memory, in bytes
)

var notCommandRE = regexp.MustCompile(`[^a-z0-9]+`)

// Record creates the record of a new run. The process that executes the run must hold the lock l.
func Record(l *state.Lock, info Info) (*Recorder, error) {
	if err := l.CheckHeld(); err != nil {
		return nil, err
	}
	started, d, holder := time.Now().UTC(), l.Dir(), l.Holder()
	if err := os.MkdirAll(runsDir(d), 0o700); err != nil {
		return nil, &state.FolderError{Dir: d, Err: err}
	}
	id := chooseID(d, holder.Command, started)
	r := &Recorder{
		lock:   l,
		folder: runDir(d, newPrefix+id),
		wake:   make(chan struct{}, 1),
		stop:   make(chan struct{}),
		most:   64 << 20,
		done:   make(chan struct{}),
		logs:   map[string]*bytes.Buffer{}, chatter: map[string]int{},
		run: Run{
			Version: version, ID: id, Command: holder.Command, Args: SafeArgs(info.Args), Hive: SafeURLs(info.Hive),
			Scheduler: info.Scheduler, Revision: info.Revision, FlakeLock: info.FlakeLock, Nixbench: info.Nixbench,
			Holder: holder, Started: started, Nodes: []state.NodeResult{},
		},
	}
	if err := r.createFolder(runDir(d, id)); err != nil {
		return nil, err
	}
	go r.runWriter()
	return r, nil
}

// createFolder creates the run's folder with run.json under a temporary name, and then renames the
// folder, so that a list of runs never contains a folder without run.json.
func (r *Recorder) createFolder(folder string) error {
	if err := os.MkdirAll(filepath.Join(r.folder, "nodes"), 0o700); err != nil {
		return &state.FolderError{Dir: r.lock.Dir(), Err: err}
	}
	if err := r.writeRun(); err != nil {
		return err
	}
	if err := os.Rename(r.folder, folder); err != nil {
		return &state.FolderError{Dir: r.lock.Dir(), Err: err}
	}
	r.folder = folder
	return nil
}

// chooseID returns an unused identifier for a run: the time and the command, and a number if
// necessary. Only the holder of the lock may call it, since other processes could choose the same
// identifier.
func chooseID(d state.Dir, command string, t time.Time) string {
	base := t.Format("20060102T150405Z") + "-" + strings.Trim(notCommandRE.ReplaceAllString(strings.ToLower(command), "-"), "-")
	base = strings.TrimSuffix(base[:min(len(base), 60)], "-")
	id := base
	for n := 2; durable.Exists(runDir(d, id)); n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	return id
}

// ID returns the run's identifier.
func (r *Recorder) ID() string { return r.run.ID }

// LogFile returns the path of node's log.
func (r *Recorder) LogFile(node string) string { return logPath(r.folder, node) }

// Event records an event. The method can be used as an [event.Sink].
func (r *Recorder) Event(e event.Event) {
	line, err := json.Marshal(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return
	case err != nil:
		r.lost++
		r.noteWriteError(err)
		return
	case len(r.events) > maxPending/2 && (e.Kind == event.NodeLog || e.Kind == event.BuildLog):
		return // drop log lines first, to keep room for other events
	case len(r.events) > maxPending:
		r.lost++
		return
	case e.Node != "" && slices.Contains([]event.Kind{event.NodeLog, event.BuildLog, event.NodeProgress, event.Message}, e.Kind):
		if r.chatter[e.Node] += len(line); r.chatter[e.Node] > r.most {
			return
		}
	}
	r.events = append(append(r.events, line...), '\n')
	if e.Kind == event.NodeLog && e.Node != "" {
		b := r.logs[e.Node]
		if b == nil {
			b = &bytes.Buffer{}
			r.logs[e.Node] = b
		}
		stamp := e.Time.UTC().Format("2006-01-02T15:04:05.000Z")
		for line := range strings.SplitSeq(strings.TrimRight(event.Printable(e.Text), "\n"), "\n") {
			fmt.Fprintf(b, "%s %s\n", stamp, line)
		}
	}
	switch e.Kind {
	case event.Answer:
		r.run.Answers += max(0, e.Time.Sub(e.Since).Seconds())
		r.changed = true
	case event.PhaseStart, event.PhaseEnd, event.NodeStart, event.NodeEnd:
		r.wakeWriter()
	default:
		if len(r.events) > 256<<10 {
			r.wakeWriter()
		}
	}
}

// Results returns the node results recorded so far.
func (r *Recorder) Results() []state.NodeResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.run.Nodes)
}

// wakeWriter requests an immediate write from runWriter. It does not wait.
func (r *Recorder) wakeWriter() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// noteWriteError stores the error of a write, or nil after a complete write, in r.err. End returns r.err. The caller
// must have locked r.mu.
func (r *Recorder) noteWriteError(err error) {
	switch {
	case r.err == nil:
		r.err = err
	case err == nil && r.lost == 0:
		r.err = nil // all pending data has now been written, and no event was dropped
	}
}

// Result records the run's result for a node. It replaces an earlier result of the same node.
func (r *Recorder) Result(n state.NodeResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.run.Nodes, func(o state.NodeResult) bool { return o.Node == n.Node }); i >= 0 {
		r.run.Nodes[i] = n
	} else {
		r.run.Nodes = append(r.run.Nodes, n)
	}
	r.changed = true
}

// Plan writes the run's plan.
func (r *Recorder) Plan(plan any) error { return r.writeFile("plan", plan) }

// Changes writes the differences between the old and the new systems of the run's nodes to the record.
func (r *Recorder) Changes(changes any) error { return r.writeFile("changes", changes) }

// writeFile writes the file NAME.json of the record.
func (r *Recorder) writeFile(name string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return r.lock.Dir().Write(filepath.Join(r.folder, name+".json"), append(data, '\n'))
}

// runWriter writes pending data every second, and when wakeWriter is called, until r.stop is closed.
func (r *Recorder) runWriter() {
	defer close(r.done)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.wake:
			_ = r.flush(false) // flush stores the error in r.err, and End returns it
		case <-tick.C:
			_ = r.flush(true)
		case <-r.stop:
			return
		}
	}
}

// flush writes the pending events and log lines. If withRun is set and the run has changed, flush
// also writes run.json. Data that could not be written stays pending.
func (r *Recorder) flush(withRun bool) error {
	r.disk.Lock()
	defer r.disk.Unlock()
	r.mu.Lock()
	events, logs := r.events, r.logs
	r.events, r.logs = nil, map[string]*bytes.Buffer{}
	withRun = withRun && r.changed
	r.mu.Unlock()

	rest, err := appendTo(filepath.Join(r.folder, "events.jsonl"), events)
	errs := []error{err}
	for node, b := range logs {
		left, err := appendTo(logPath(r.folder, node), b.Bytes())
		errs = append(errs, err)
		if len(left) == 0 {
			delete(logs, node)
		} else {
			logs[node] = bytes.NewBuffer(left)
		}
	}
	if withRun {
		errs = append(errs, r.writeRun())
	}
	err = errors.Join(errs...)

	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteWriteError(err)
	if len(rest) > 0 {
		r.events = append(rest, r.events...)
	}
	for node, old := range logs {
		if b := r.logs[node]; b != nil {
			old.Write(b.Bytes())
		}
		r.logs[node] = old
	}
	return err
}

// appendTo appends data to a file and returns the part of data that could not be written. It opens and closes the file
// in each call, because on many systems a process may not keep the logs of a thousand nodes open at the same time.
func appendTo(file string, data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return data, err
	}
	n, err := f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return data[n:], err
}

// writeRun writes run.json. If the write fails, run.json counts as changed, so that the next write includes it.
func (r *Recorder) writeRun() error {
	r.mu.Lock()
	r.changed = false
	data, err := json.MarshalIndent(r.run, "", "  ")
	r.mu.Unlock()
	if err == nil {
		err = r.lock.Dir().Write(filepath.Join(r.folder, "run.json"), append(data, '\n'))
	}
	if err != nil {
		r.mu.Lock()
		r.changed = true
		r.mu.Unlock()
	}
	return err
}

// Discard ends the record and removes its folder. It is used if the run has done nothing.
func (r *Recorder) Discard() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.mu.Unlock()
	close(r.stop)
	<-r.done
	r.disk.Lock()
	defer r.disk.Unlock()
	if err := os.RemoveAll(r.folder); err != nil {
		return &state.FolderError{Dir: r.lock.Dir(), Err: err}
	}
	return nil
}

// End completes the record with the run's exit code and, if the run failed, the cause. It returns an
// error if the record is incomplete.
func (r *Recorder) End(exit int, cause error) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	now := time.Now().UTC()
	r.run.Ended, r.run.Exit = &now, &exit
	if cause != nil {
		r.run.Error = cause.Error()
	}
	r.mu.Unlock()
	close(r.stop)
	<-r.done
	last := r.flush(false)
	if err := r.writeRun(); err != nil {
		last = err
	}
	if err := r.lock.Dir().BackUp(r.folder); err != nil && last == nil {
		last = err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteWriteError(last)
	if r.lost > 0 {
		return errors.Join(fmt.Errorf("record of run %s: %d events are lost", r.run.ID, r.lost), r.err)
	}
	if r.err != nil {
		return fmt.Errorf("record of run %s: %w", r.run.ID, r.err)
	}
	return nil
}
