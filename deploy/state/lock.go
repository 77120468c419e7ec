package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Holder describes the process that holds the lock.
type Holder struct {
	Command string    `json:"command"` // nixbench's subcommand, such as apply
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	User    string    `json:"user"`
	Started time.Time `json:"started"`
}

// Self returns a Holder that describes this process. command is the subcommand of nixbench that the process runs.
func Self(command string) Holder {
	h := Holder{Command: command, PID: os.Getpid(), User: fmt.Sprintf("uid %d", os.Getuid()), Started: time.Now().UTC()}
	h.Host, _ = os.Hostname()
	if u, err := user.Current(); err == nil && u.Username != "" {
		h.User = u.Username
	}
	return h
}

// Process names the process: root@vm (pid 17814).
func (h Holder) Process() string { return fmt.Sprintf("%s@%s (pid %d)", h.User, h.Host, h.PID) }

// Lock is the cluster's lock; only its holder may change the cluster. The kernel releases the lock when the process of
// the holder ends or is killed, so a lock is never stale. After the holder was killed, the lock file still contains its
// description, but the lock is free.
type Lock struct {
	dir    Dir
	holder Holder

	mu   sync.Mutex
	file *os.File // the open lock file; nil after Unlock
}

func (l *Lock) Dir() Dir       { return l.dir }
func (l *Lock) Holder() Holder { return l.holder }

// If another process holds the lock, nixbench tries again every retryEvery, and reports the holder only after retryFor: a process that
// checks whether the lock is free holds it for a moment, and a new holder needs a moment to write its description into the lock file.
const (
	retryFor   = 60 * time.Millisecond
	retryEvery = 10 * time.Millisecond
)

// Lock takes the cluster's lock for the process h. If another process holds the lock, the error is a [*LockedError]
// that describes the other process. Commands that only read need no lock.
func (d Dir) Lock(ctx context.Context, h Holder) (*Lock, error) {
	if err := d.Create(); err != nil {
		return nil, err
	}
	begun := time.Now()
	for {
		f, err := d.openLock(os.O_RDWR|os.O_CREATE, unix.LOCK_EX)
		if err == nil {
			l := &Lock{dir: d, holder: h, file: f}
			if err := l.writeHolder(); err != nil {
				f.Close()
				return nil, d.Error(err)
			}
			return l, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, d.Error(err)
		}
		if time.Since(begun) >= retryFor {
			return nil, &LockedError{d, readHolder(d)}
		}
		select {
		case <-time.After(retryEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

type LockedError struct {
	Dir    Dir
	Holder Holder // the process that holds the lock; empty if the lock file does not contain it
}

func (e *LockedError) Error() string {
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("the cluster is locked by another process (state folder %s)", e.Dir)
	}
	return fmt.Sprintf("the cluster is locked by nixbench %s: the lock is held by %s since %s", e.Holder.Command, e.Holder.Process(), e.Holder.Started.UTC().Format("2006-01-02 15:04:05 UTC"))
}

func (*LockedError) Kind() failure.Kind { return failure.Locked }

func (*LockedError) Hint() string {
	return "wait until it is done; the lock ends with its process, so there is nothing to remove"
}

// openLock opens and locks the lock file without waiting. how is unix.LOCK_EX or unix.LOCK_SH. It fails with EWOULDBLOCK if another
// process holds the lock. nixbench never deletes the lock file. Otherwise one process could hold a lock on the deleted file, and another
// process a lock on a new file of the same name.
func (d Dir) openLock(flags, how int) (*os.File, error) {
	f, err := os.OpenFile(d.lockFile(), flags|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, err
	}
	return nil, fmt.Errorf("its file system cannot lock files: %w", err)
}

// writeHolder writes the holder into the existing lock file, because a new file would not be locked.
func (l *Lock) writeHolder() error {
	data, _ := json.Marshal(l.holder) // never fails
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt(append(data, '\n'), 0)
	return err
}

// readHolder reads the last holder from the lock file. It returns an empty Holder while a process is writing the file.
func readHolder(d Dir) Holder {
	var h Holder
	data, err := durable.Read(d.lockFile(), 64<<10)
	if err != nil || json.Unmarshal(bytes.TrimSpace(data), &h) != nil {
		return Holder{}
	}
	return h
}

// Holder returns the process that holds the lock, or nil if the lock is free.
func (d Dir) Holder() (*Holder, error) {
	f, err := d.openLock(os.O_RDONLY, unix.LOCK_SH)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err == nil:
		return nil, f.Close()
	case !errors.Is(err, unix.EWOULDBLOCK):
		return nil, d.Error(err)
	}
	for begun := time.Now(); ; time.Sleep(retryEvery) {
		if h := readHolder(d); h != (Holder{}) || time.Since(begun) > retryFor {
			return &h, nil
		}
	}
}

// Unlock releases the lock. Further calls do nothing.
func (l *Lock) Unlock() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	err := f.Truncate(0)
	return l.dir.Error(errors.Join(err, f.Close()))
}

var errUnlocked = errors.New("written without its lock")

func (l *Lock) CheckHeld() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return l.dir.Error(errUnlocked)
	}
	return nil
}
