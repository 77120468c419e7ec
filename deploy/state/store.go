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
// An update is on disk when Update returns. Updates that come while the disk is
// busy are written together, so a thousand nodes cost a few writes.
type Store struct {
	lock *Lock

	mu      sync.Mutex
	cur     *State // with all updates
	disk    *State // without those that are not written yet
	waiting *batch // of updates that the next write takes along
	writing bool
}

type batch struct {
	done chan struct{}
	err  error
}

// Store opens the state for changes.
func (l *Lock) Store() (*Store, error) {
	if err := l.held(); err != nil {
		return nil, err
	}
	s, err := l.dir.Load()
	if err != nil {
		return nil, err
	}
	l.dir.sweep()
	return &Store{lock: l, cur: s, disk: s}, nil
}

var leftoverRE = regexp.MustCompile(`^\.(state|run|plan|runtime|images)\.json[0-9]+$|^\.(known_hosts|kubeconfig)[0-9]+$`)

// sweep removes what killed processes left half-written. Whatever cannot be
// removed does no harm.
func (d Dir) sweep() {
	sweep(string(d), leftoverRE.MatchString)
	// Half of a private key is no key, but it is nobody's business either.
	hidden := func(name string) bool { return strings.HasPrefix(name, ".") }
	sweep(filepath.Dir(d.ClientKey()), hidden)
	sweep(filepath.Dir(d.hostKey("")), hidden)
	sweep(d.Vault(), hidden)
}

func sweep(dir string, leftover func(name string) bool) {
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

// State gives a copy of the current state.
func (s *Store) State() *State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur.clone()
}

// Node gives one node of the current state: a copy of all would cost a thousand nodes
// a million copies. What pointers and slices in it lead to is not to be changed.
func (s *Store) Node(name string) Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur.Nodes[name]
}

// Update changes the state by f, which must not keep its argument nor change what
// pointers and slices in it lead to. Where f or the disk fails, nothing changes.
func (s *Store) Update(f func(*State) error) error {
	s.mu.Lock()
	next := s.cur.clone()
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

// write writes until nobody waits.
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
		// Updates that came meanwhile build on those that failed, and fail with them.
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

func (s *Store) put(state *State) error {
	if err := s.lock.held(); err != nil {
		return err
	}
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	d := s.lock.dir
	return d.write(d.stateFile(), append(data, '\n'))
}

// Begin writes down that step is about to be done on node, before it is.
func (s *Store) Begin(i Intent) error {
	if i.Since.IsZero() {
		i.Since = time.Now().UTC()
	}
	return s.Update(func(st *State) error { st.Begin(i); return nil })
}

// Finish writes down that it was done, or undone.
func (s *Store) Finish(i Intent) error {
	return s.Update(func(st *State) error { st.Finish(i.Run, i.Node, i.Step); return nil })
}
