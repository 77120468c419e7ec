package state

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

	"github.com/nixbench/nixbench/deploy/event"
)

// RunInfo is what is known of a run when it begins.
type RunInfo struct {
	Args      []string // without the program's name
	Hive      string
	Revision  string
	FlakeLock string
	Nixbench  string
}

// Recorder writes a run's record. What it was told is on disk a second later, and
// at once when a phase or a node is through; a killed run loses no more than that.
type Recorder struct {
	lock   *Lock
	folder string
	wake   chan struct{} // something is worth writing at once
	stop   chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	run     Run
	changed bool                     // run is newer than run.json
	events  []byte                   // to be written
	logs    map[string]*bytes.Buffer // by node, to be written
	lost    int                      // events that were dropped since the disk takes none
	err     error                    // why the record is not complete
	closed  bool

	disk sync.Mutex // held while writing, so that lines stay in order
}

const (
	flushEvery = time.Second
	maxPending = 8 << 20 // bytes that wait for a disk that takes none
)

var notCommandRE = regexp.MustCompile(`[^a-z0-9]+`)

// Record begins the record of a run by the lock's holder.
func (l *Lock) Record(info RunInfo) (*Recorder, error) {
	if err := l.held(); err != nil {
		return nil, err
	}
	started := time.Now().UTC()
	if err := os.MkdirAll(l.dir.runsDir(), 0o700); err != nil {
		return nil, &FolderError{l.dir, err}
	}
	id := l.dir.freeID(l.holder.Command, started)
	r := &Recorder{
		lock:   l,
		folder: l.dir.runDir(fresh + id),
		wake:   make(chan struct{}, 1),
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
		logs:   map[string]*bytes.Buffer{},
		run: Run{
			Version: runVersion, ID: id, Command: l.holder.Command, Args: SafeArgs(info.Args), Hive: safeText(info.Hive),
			Revision: info.Revision, FlakeLock: info.FlakeLock, Nixbench: info.Nixbench,
			Holder: l.holder, Started: started, Nodes: []NodeResult{},
		},
	}
	if err := r.make(l.dir.runDir(id)); err != nil {
		return nil, err
	}
	go r.loop()
	return r, nil
}

// make makes the run's folder under another name first: who lists runs sees none
// that has no record yet.
func (r *Recorder) make(folder string) error {
	if err := os.MkdirAll(filepath.Join(r.folder, "nodes"), 0o700); err != nil {
		return &FolderError{r.lock.dir, err}
	}
	if err := r.writeRun(); err != nil {
		return err
	}
	if err := os.Rename(r.folder, folder); err != nil {
		return &FolderError{r.lock.dir, err}
	}
	r.folder = folder
	return nil
}

// freeID makes a run's identifier. Only the lock's holder does.
func (d Dir) freeID(command string, t time.Time) string {
	base := t.Format("20060102T150405Z") + "-" + strings.Trim(notCommandRE.ReplaceAllString(strings.ToLower(command), "-"), "-")
	base = strings.TrimSuffix(base[:min(len(base), 60)], "-")
	id := base
	for n := 2; exists(d.runDir(id)); n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	return id
}

// ID names the run.
func (r *Recorder) ID() string { return r.run.ID }

// LogFile is where the lines go that node prints.
func (r *Recorder) LogFile(node string) string { return logFile(r.folder, node) }

// Event takes what happens; it is an [event.Sink].
func (r *Recorder) Event(e event.Event) {
	line, err := json.Marshal(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return
	case err != nil:
		r.lost++
		r.fail(err)
		return
	case len(r.events) > maxPending/2 && (e.Kind == event.NodeLog || e.Kind == event.BuildLog):
		return // a flood of lines; those that say what happened are kept
	case len(r.events) > maxPending:
		r.lost++
		return
	}
	r.events = append(append(r.events, line...), '\n')
	if e.Kind == event.NodeLog && e.Node != "" {
		b := r.logs[e.Node]
		if b == nil {
			b = &bytes.Buffer{}
			r.logs[e.Node] = b
		}
		stamp := e.Time.UTC().Format("2006-01-02T15:04:05.000Z")
		for line := range strings.SplitSeq(strings.TrimRight(e.Text, "\n"), "\n") {
			fmt.Fprintf(b, "%s %s\n", stamp, line)
		}
	}
	switch e.Kind {
	case event.PhaseStart, event.PhaseEnd, event.NodeStart, event.NodeEnd:
		r.hurry()
	default:
		if len(r.events) > 256<<10 {
			r.hurry()
		}
	}
}

// Results are those that were recorded so far.
func (r *Recorder) Results() []NodeResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.run.Nodes)
}

func (r *Recorder) hurry() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Recorder) fail(err error) {
	switch {
	case r.err == nil:
		r.err = err
	case err == nil && r.lost == 0:
		r.err = nil // the disk has room again, and nothing is missing
	}
}

// Result notes how the run ended for a node. A later word about the same node
// counts.
func (r *Recorder) Result(n NodeResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.run.Nodes, func(o NodeResult) bool { return o.Node == n.Node }); i >= 0 {
		r.run.Nodes[i] = n
	} else {
		r.run.Nodes = append(r.run.Nodes, n)
	}
	r.changed = true
}

// Plan keeps what the run is going to do.
func (r *Recorder) Plan(plan any) error {
	data, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	return r.lock.dir.write(filepath.Join(r.folder, "plan.json"), append(data, '\n'))
}

func (r *Recorder) loop() {
	defer close(r.done)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.wake:
			_ = r.flush(false) // kept for End
		case <-tick.C:
			_ = r.flush(true)
		case <-r.stop:
			return
		}
	}
}

// flush writes what waits.
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
		left, err := appendTo(logFile(r.folder, node), b.Bytes())
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
	r.fail(err)
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

// appendTo opens the file each time: a thousand open logs are more than many
// systems allow. It gives what could not be written.
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

func (r *Recorder) writeRun() error {
	r.mu.Lock()
	r.changed = false
	data, err := json.MarshalIndent(r.run, "", "  ")
	r.mu.Unlock()
	if err == nil {
		err = r.lock.dir.write(filepath.Join(r.folder, "run.json"), append(data, '\n'))
	}
	if err != nil {
		r.mu.Lock()
		r.changed = true
		r.mu.Unlock()
	}
	return err
}

// End closes the record: the run exits with this code, because of cause if that is
// not 0. The error is about the record itself, where it is not complete.
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
	if err := r.lock.dir.backUp(r.run.ID); err != nil && last == nil {
		last = err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(last)
	if r.lost > 0 {
		return errors.Join(fmt.Errorf("record of run %s: %d events are lost", r.run.ID, r.lost), r.err)
	}
	if r.err != nil {
		return fmt.Errorf("record of run %s: %w", r.run.ID, r.err)
	}
	return nil
}
