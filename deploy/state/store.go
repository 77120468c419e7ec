package state

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Store reads and changes the state. All goroutines of a process use one Store.
//
// When Update returns, its changes are on disk. Updates that are called during a write are combined
// into the next write, so that the updates of a thousand nodes need only a few writes.
type Store struct {
	put func(*State) error // writes state.json; replaced in tests

	mu      sync.Mutex
	cur     *State // the state with all accepted updates
	waiting *batch // the updates for the next write; nil if no update waits

	disk    sync.Mutex // held during a write
	written *State     // the state that was last written
}

// batch is a set of updates that are written together. Its fields are guarded by Store.disk.
type batch struct {
	done bool  // the updates were written, or have failed
	err  error // why the write failed
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
	return &Store{put: l.writeState, cur: s, written: s}, nil
}

// ReadOnly returns a Store whose state cannot be changed. It is for functions that have a Store as an argument and only read the state.
func ReadOnly(s *State) *Store {
	return &Store{cur: s, written: s, put: func(*State) error { return errors.New("the state cannot be changed: it is that of a preview") }}
}

// removeTemporaryFiles deletes the temporary files of killed processes, which may contain a part of a key. Their names are a dot, the
// name of the file, and a number. It ignores errors, since nixbench never reads such a file.
func removeTemporaryFiles(d Dir) {
	for _, pattern := range []string{".*[0-9]", "secrets/.*", "secrets/*/.*"} {
		files, _ := fs.Glob(os.DirFS(string(d)), pattern) // the name of the folder is no pattern
		for _, file := range files {
			_ = os.Remove(filepath.Join(string(d), file))
		}
	}
}

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

// MachineOf is like [State.MachineOf]. The caller must not change the values of pointers in the records.
func (s *Store) MachineOf(node string) (Machine, *Cluster, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur.MachineOf(node)
}

// Update calls f to change the state, and writes the state to disk. f must not keep its argument, and must not change the values of
// existing pointers and slices. If f or the write fails, the state is unchanged.
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
		s.waiting = &batch{}
	}
	mine := s.waiting
	s.mu.Unlock()

	s.disk.Lock()
	defer s.disk.Unlock()
	if mine.done { // another goroutine has written this update with its own
		return mine.err
	}
	s.mu.Lock()
	state := s.cur
	s.waiting = nil
	s.mu.Unlock()
	mine.done, mine.err = true, s.put(state)
	if mine.err == nil {
		s.written = state
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cur = s.written
	if late := s.waiting; late != nil { // these updates fail, too, because they were computed from the state that could not be written
		late.done, late.err, s.waiting = true, mine.err, nil
	}
	return mine.err
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
