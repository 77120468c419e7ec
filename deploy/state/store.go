package state

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Store changes the state. There is one per lock, for all goroutines.
//
// An update is on disk when Update returns. Updates that arrive during a write are combined
// into the next write, so a thousand nodes need only a few writes.
type Store struct {
	lock *Lock
	put  func(*State) error // writes the file

	mu      sync.Mutex
	cur     *State // with all accepted updates
	disk    *State // as last written
	waiting *batch // updates for the next write
	writing bool
}

type batch struct {
	done chan struct{}
	err  error
}

// Store opens the state for changes.
func (l *Lock) Store() (*Store, error) {
	if err := l.checkHeld(); err != nil {
		return nil, err
	}
	s, err := l.dir.Load()
	if err != nil {
		return nil, err
	}
	l.dir.removeTemporaryFiles()
	return &Store{lock: l, put: l.writeState, cur: s, disk: s}, nil
}

var leftoverRE = regexp.MustCompile(`^\.(state|run|plan|runtime|images)\.json[0-9]+$|^\.(known_hosts|kubeconfig)[0-9]+$`)

// removeTemporaryFiles deletes the temporary files of killed processes. Errors are ignored, since
// such a file is harmless.
func (d Dir) removeTemporaryFiles() {
	removeMatching(string(d), leftoverRE.MatchString)
	// Temporary files of private keys may contain a part of a key.
	hidden := func(name string) bool { return strings.HasPrefix(name, ".") }
	removeMatching(filepath.Dir(d.ClientKey()), hidden)
	removeMatching(filepath.Dir(d.hostKey("")), hidden)
	removeMatching(d.Vault(), hidden)
}

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

// Node returns one node of the current state. It avoids copying the whole state once per node.
// The caller must not change the values behind pointers and slices.
func (s *Store) Node(name string) Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur.Nodes[name]
}

// Update changes the state with f and writes it. f must not keep its argument, nor change values
// behind existing pointers and slices. If f or the write fails, the state is unchanged.
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
		go s.write()
	}
	s.mu.Unlock()
	<-mine.done
	return mine.err
}

// write writes batches of updates until none is waiting.
func (s *Store) write() {
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
		// Updates since then are based on the failed ones, so they fail too.
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

// writeState writes the state, unless the lock has been released.
func (l *Lock) writeState(state *State) error {
	if err := l.checkHeld(); err != nil {
		return err
	}
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return l.dir.write(l.dir.stateFile(), append(data, '\n'))
}

// Begin records an intent. It is called before the effect.
func (s *Store) Begin(i Intent) error {
	if i.Since.IsZero() {
		i.Since = time.Now().UTC()
	}
	return s.Update(func(st *State) error { st.Begin(i); return nil })
}

// Finish removes an intent whose effect is completed or undone.
func (s *Store) Finish(i Intent) error {
	return s.Update(func(st *State) error { st.Finish(i.Run, i.Node, i.Step); return nil })
}
