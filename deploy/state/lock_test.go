package state

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"
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
