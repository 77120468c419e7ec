package state

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Store reads and changes the state. All goroutines of a process use one Store.
//
// When Update returns, its changes are on disk. Updates that are called during a write are combined
// into the next write, so that the updates of a thousand nodes need only a few writes.
type Store struct {
	lock *Lock
	put  func(*State) error // writes state.json; replaced in tests

	mu      sync.Mutex
	cur     *State // the state with all accepted updates
	disk    *State // the state that was last written
	waiting *batch // the updates for the next write; nil if no update waits
	writing bool   // a goroutine runs writeBatches
}

// batch is a set of updates that are written together.
type batch struct {
	done chan struct{} // closed when the batch of updates was written, or has failed
	err  error         // why the write failed
}

// Store opens the state for changes.
func (l *Lock) Store() (*Store, error) {
	if err := l.CheckHeld(); err != nil {
		return nil, err
	}
	s, err := l.dir.Load()
	if err != nil {
		return nil, err
	}
	removeTemporaryFiles(l.dir)
	return &Store{lock: l, put: l.writeState, cur: s, disk: s}, nil
}

// ReadOnly returns a Store whose state cannot be changed. It is for functions that have a Store as an argument and only read the state.
func ReadOnly(s *State) *Store {
	return &Store{cur: s, disk: s, put: func(*State) error { return errors.New("the state cannot be changed: it is that of a preview") }}
}

// leftoverRE matches the names of temporary files: a dot, the name of the file, and a number.
var leftoverRE = regexp.MustCompile(`^\.[a-z][a-z_.-]*[0-9]+$`)

// removeTemporaryFiles deletes the temporary files of killed processes. It ignores errors, since
// nixbench never reads such a file.
func removeTemporaryFiles(d Dir) {
	removeMatching(string(d), leftoverRE.MatchString)
	// Temporary files of private keys have names that begin with a dot. They may contain a part of a key.
	hidden := func(name string) bool { return strings.HasPrefix(name, ".") }
	removeMatching(filepath.Dir(d.ClientKey()), hidden)
	removeMatching(filepath.Join(string(d), "secrets", "hosts"), hidden)
	removeMatching(d.Vault(), hidden)
}

// removeMatching deletes each file in dir if the function leftover returns true for its name. It ignores errors.
func removeMatching(dir string, leftover func(name string) bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if leftover(e.Name()) && !e.IsDir() {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// State returns a copy of the current state.
func (s *Store) State() *State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur.Clone()
}

// Node returns the record of one node. Unlike State, it does not copy the whole state. The caller
// must not change the values of pointers and slices in the record.
func (s *Store) Node(name string) Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur.Nodes[name]
}

// MachineOf returns the record of a node's machine, or a zero Machine if there is none, and the recorded
// cluster. The caller must not change the values of pointers in the records.
func (s *Store) MachineOf(node string) (Machine, *Cluster, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur.MachineOf(node)
}

// Update calls f to change the state, and writes the state to disk. f must not keep its argument, and
// must not change the values of existing pointers and slices. If f or the write fails, the state is
// unchanged.
func (s *Store) Update(f func(*State) error) error {
	s.mu.Lock()
	next := s.cur.Clone()
	if err := f(next); err != nil {
		s.mu.Unlock()
		return err
	}
	next.Version = version
	s.cur = next
	if s.waiting == nil {
		s.waiting = &batch{done: make(chan struct{})}
	}
	mine := s.waiting
	if !s.writing {
		s.writing = true
		go s.writeBatches()
	}
	s.mu.Unlock()
	<-mine.done
	return mine.err
}

// writeBatches writes batches of updates until no batch is waiting.
func (s *Store) writeBatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting != nil {
		b, state := s.waiting, s.cur
		s.waiting = nil
		s.mu.Unlock()
		err := s.put(state)
		s.mu.Lock()
		if err == nil {
			s.disk = state
			close(b.done)
			continue
		}
		// The waiting updates fail, too, because they were computed from the state that could not be written.
		s.cur = s.disk
		b.err = err
		close(b.done)
		if late := s.waiting; late != nil {
			s.waiting = nil
			late.err = err
			close(late.done)
		}
	}
	s.writing = false
}

// writeState writes state.json. It fails if the lock has been released.
func (l *Lock) writeState(state *State) error {
	if err := l.CheckHeld(); err != nil {
		return err
	}
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return l.dir.Write(l.dir.stateFile(), append(data, '\n'))
}

// Begin records an intent. It is called before the operation begins.
func (s *Store) Begin(i Intent) error {
	if i.Since.IsZero() {
		i.Since = time.Now().UTC()
	}
	return s.Update(func(st *State) error { st.Begin(i); return nil })
}

// Finish removes an [Intent] from the state. It is called when the operation is completed or undone.
func (s *Store) Finish(i Intent) error {
	return s.Update(func(st *State) error { st.Finish(i.Run, i.Node, i.Step); return nil })
}
