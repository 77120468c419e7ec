package libvirt

import (
	"context"
	"errors"
	"time"

	"libvirt.org/go/libvirt"
)

// session is one operation on one connection. It contains the context of the operation, because a session exists only
// during its operation.
type session struct {
	ctx            context.Context
	h              *Hypervisor
	conn           *libvirt.Connect
	host           host
	reportProgress func() // restarts the callTimeout of runWithTimeout
	used           []interface{ Free() error }
}

// freeAtEnd registers an object of libvirt to be freed when the operation ends. Until then, the object keeps its connection open.
func (s *session) freeAtEnd(x interface{ Free() error }) { s.used = append(s.used, x) }

// runOperation executes an operation. It retries the operation when the connection breaks, and once when libvirt does
// not answer a call. Each retry opens a new connection.
func (h *Hypervisor) runOperation(ctx context.Context, op func(*session) error) error {
	run := func() error {
		return h.runWithTimeout(ctx, func(ctx context.Context, conn *libvirt.Connect, host host, beat func()) error {
			s := &session{ctx: ctx, h: h, conn: conn, host: host, reportProgress: beat}
			defer func() {
				for _, x := range s.used {
					_ = x.Free()
				}
			}()
			return op(s)
		})
	}
	err := run()
	if errors.Is(err, errNoAnswer) && ctx.Err() == nil {
		err = run()
	}
	return err
}

// beforeChange is called before every change on the hypervisor. It returns an error if the operation has to stop.
func (s *session) beforeChange(what string) error {
	s.reportProgress()
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if s.h.onChange != nil {
		return s.h.onChange(what)
	}
	return nil
}

func (s *session) sleep(d time.Duration) error {
	s.reportProgress()
	select {
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// acquireSlot waits for a free slot in a semaphore, and takes the slot.
func (s *session) acquireSlot(places chan struct{}) error {
	for {
		select {
		case places <- struct{}{}:
			return nil
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-time.After(time.Second):
			s.reportProgress() // waiting counts as progress, because the operations that hold the slots have timeouts of their own
		}
	}
}

// inOrder calls the functions one after the other, until one of them fails, and returns the error of that function.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
