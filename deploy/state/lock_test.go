package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func folder(t *testing.T) Dir { return Dir(filepath.Join(t.TempDir(), ".nixbench", "demo")) }

func mustLock(t *testing.T, d Dir, command string) *Lock {
	t.Helper()
	l, err := d.Lock(context.Background(), Self(command))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Unlock() })
	return l
}

// Many processes get the lock one after the other. Asking for the holder does not disturb them.
func TestOneAtATime(t *testing.T) {
	d := folder(t)
	if err := d.Create(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				if _, err := d.Holder(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	var mu sync.Mutex
	inside, most := 0, 0
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			l := waitLock(t, d, "apply")
			if l == nil {
				return
			}
			mu.Lock()
			inside++
			most = max(most, inside)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			inside--
			mu.Unlock()
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for range 20 { // the lock is free, but others ask for its holder
		if err := mustLock(t, d, "apply").Unlock(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	asking.Wait()
	if most != 1 {
		t.Errorf("%d at once", most)
	}
}

// A lock on a file that was deleted is not valid.
func TestTheLockFileIsReplaced(t *testing.T) {
	d := folder(t)
	if err := d.Create(); err != nil {
		t.Fatal(err)
	}
	calls := 0
	l, err := takeLock(context.Background(), d, Self("apply"), func(fd, how int) error {
		if calls++; calls == 1 {
			if err := os.Remove(d.lockFile()); err != nil {
				t.Error(err)
			}
		}
		return unix.Flock(fd, how)
	})
	if err != nil || calls != 2 {
		t.Fatal(err, calls)
	}
	defer l.Unlock()
	if _, err := d.Lock(context.Background(), Self("apply")); err == nil {
		t.Error("locked twice")
	}
}

func TestAFileSystemWithoutLocks(t *testing.T) {
	d := folder(t)
	_, err := takeLock(context.Background(), d, Self("apply"), func(int, int) error { return unix.ENOLCK })
	var f *FolderError
	if !errors.As(err, &f) || !strings.Contains(err.Error(), string(d)+": its file system cannot lock files") || f.Hint() == "" {
		t.Error(err)
	}
	interrupted := 0
	l, err := takeLock(context.Background(), d, Self("apply"), func(fd, how int) error {
		if interrupted++; interrupted < 3 {
			return unix.EINTR
		}
		return unix.Flock(fd, how)
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Unlock()
}

// waitLock takes the lock as soon as it is free. It returns nil after a failure.
func waitLock(t *testing.T, d Dir, command string) *Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		l, err := d.Lock(ctx, Self(command))
		if err == nil {
			return l
		}
		if locked := (*LockedError)(nil); !errors.As(err, &locked) {
			t.Error(err)
			return nil
		}
	}
}

// A lock on a file that was replaced between open and lock does not count: the new file is locked.
func TestTheLockFileIsReplacedMeanwhile(t *testing.T) {
	d := folder(t)
	replaced := false
	l, err := takeLock(t.Context(), d, Self("apply"), func(fd, how int) error {
		if !replaced {
			replaced = true
			if err := os.WriteFile(d.lockFile()+".other", nil, 0o600); err != nil {
				t.Error(err)
			}
			if err := os.Rename(d.lockFile()+".other", d.lockFile()); err != nil {
				t.Error(err)
			}
		}
		return unix.Flock(fd, how)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	var locked *LockedError
	if _, err := d.Lock(t.Context(), Self("apply")); !errors.As(err, &locked) {
		t.Errorf("a second process gets the lock: %v", err)
	}
}
