package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/durable"
)

// Holder is who has the lock.
type Holder struct {
	Command string    `json:"command"` // as in `apply`
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	User    string    `json:"user"`
	Started time.Time `json:"started"`
}

// Self is this process, doing command.
func Self(command string) Holder {
	h := Holder{Command: command, PID: os.Getpid(), User: os.Getenv("USER"), Started: time.Now().UTC()}
	h.Host, _ = os.Hostname()
	if h.User == "" {
		h.User = fmt.Sprintf("uid %d", os.Getuid())
	}
	return h
}

func (h Holder) String() string {
	return fmt.Sprintf("`nixbench %s` of %s@%s, process %d, since %s", h.Command, h.User, h.Host, h.PID, since(h.Started, time.Now()))
}

func (h Holder) same(o Holder) bool {
	return h.PID == o.PID && h.Host == o.Host && h.Started.Equal(o.Started)
}

// Lock is the right to change a cluster. It ends with the process, however that
// ends, so no lock is ever stale: what stays in the file of a killed process is
// only its name.
type Lock struct {
	dir    Dir
	holder Holder

	mu   sync.Mutex
	file *os.File // nil once unlocked
}

// flocker is flock(2), or what a test has instead.
type flocker func(fd, how int) error

// settle is how long a refused lock is tried again before the holder is named:
// a reader that asks whether the lock is free has it for a moment, and a new holder
// needs a moment to write its name.
const (
	settle = 60 * time.Millisecond
	retry  = 10 * time.Millisecond
)

// Lock takes the cluster's lock for h. Where another process has it, a
// [*LockedError] says who. Commands that only read need no lock.
func (d Dir) Lock(ctx context.Context, h Holder) (*Lock, error) {
	return d.lock(ctx, h, unix.Flock, false)
}

// WaitLock is Lock, but waits for the lock until ctx is done.
func (d Dir) WaitLock(ctx context.Context, h Holder) (*Lock, error) {
	return d.lock(ctx, h, unix.Flock, true)
}

func (d Dir) lock(ctx context.Context, h Holder, flock flocker, wait bool) (*Lock, error) {
	if err := d.Create(); err != nil {
		return nil, err
	}
	begun := time.Now()
	for {
		f, err := d.tryLock(flock)
		if err == nil {
			l := &Lock{dir: d, holder: h, file: f}
			if err := l.sign(); err != nil {
				f.Close()
				return nil, &FolderError{d, err}
			}
			return l, nil
		}
		if trust := (*TrustError)(nil); errors.As(err, &trust) {
			return nil, trust
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &FolderError{d, err}
		}
		if !wait && time.Since(begun) >= settle {
			return nil, &LockedError{d, d.signature()}
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			if wait && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, &LockedError{d, d.signature()}
			}
			return nil, ctx.Err()
		}
	}
}

func (d Dir) lockFile() string { return filepath.Join(string(d), "lock") }

// tryLock gives the locked file. The file is never deleted: two processes could
// then hold locks on two files of the same name. Should somebody else have deleted
// it between our open and our lock, a lock on the old one would be worthless.
func (d Dir) tryLock(flock flocker) (*os.File, error) {
	f, err := os.OpenFile(d.lockFile(), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := d.own(f); err != nil {
		f.Close()
		return nil, err
	}
	if err := lockFile(f, unix.LOCK_EX, flock); err != nil {
		f.Close()
		return nil, err
	}
	mine, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if there, err := os.Stat(d.lockFile()); err != nil || !os.SameFile(mine, there) {
		f.Close()
		return nil, unix.EWOULDBLOCK
	}
	return f, nil
}

// own refuses to lock what will be overwritten, and is not only the lock: another file under a
// second name.
func (d Dir) own(f *os.File) error {
	info, err := f.Stat()
	if err == nil {
		err = durable.CheckRegular(info)
	}
	if err == nil && info.Sys().(*syscall.Stat_t).Nlink > 1 {
		err = errors.New("it has a second name, so that it may be a file of another program")
	}
	if err != nil {
		return &TrustError{d.lockFile(), err, "remove it"}
	}
	return nil
}

func lockFile(f *os.File, how int, flock flocker) error {
	for {
		switch err := flock(int(f.Fd()), how|unix.LOCK_NB); {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return err
		default:
			return fmt.Errorf("%w: %w", errNoLocks, err)
		}
	}
}

// sign writes the holder into the file itself: a renamed one would not be locked.
func (l *Lock) sign() error {
	data, err := json.Marshal(l.holder)
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(append(data, '\n'), 0)
	return err
}

// signature reads who signed last; it is empty while somebody signs.
func (d Dir) signature() Holder {
	var h Holder
	data, err := durable.Read(d.lockFile(), 64<<10)
	if err != nil || json.Unmarshal(bytes.TrimSpace(data), &h) != nil {
		return Holder{}
	}
	return h
}

// Holder says who has the lock, or nil.
func (d Dir) Holder() (*Holder, error) {
	f, _, err := durable.OpenNoFollow(d.lockFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &FolderError{d, err}
	}
	defer f.Close()
	err = lockFile(f, unix.LOCK_SH, unix.Flock)
	if err == nil {
		return nil, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, &FolderError{d, err}
	}
	for begun := time.Now(); ; time.Sleep(retry) {
		if h := d.signature(); h != (Holder{}) || time.Since(begun) > settle {
			return &h, nil
		}
	}
}

// Unlock gives the lock back. It may be called again.
func (l *Lock) Unlock() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	err := f.Truncate(0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return &FolderError{l.dir, err}
	}
	return nil
}

var errUnlocked = errors.New("written without its lock")

func (l *Lock) held() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return &FolderError{l.dir, errUnlocked}
	}
	return nil
}
