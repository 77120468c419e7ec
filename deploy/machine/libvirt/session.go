package libvirt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

// session is one operation on one connection. It contains the context of the operation, because a session exists only during its operation.
type session struct {
	ctx   context.Context
	h     *Hypervisor
	conn  *libvirt.Connect
	host  host
	beats chan struct{} // gets a value when the operation makes progress
	used  []interface{ Free() error }
}

// freeAtEnd registers an object of libvirt to be freed when the operation ends. Until then, the object keeps its connection open.
func (s *session) freeAtEnd(x interface{ Free() error }) { s.used = append(s.used, x) }

// cancelGrace is how long an operation may take to return after its context has ended.
const cancelGrace = time.Second

// errNoAnswer is the error of an operation that made no progress for callTimeout.
var errNoAnswer = errors.New("libvirt did not answer a call")

// runOperation executes an operation. It abandons the operation if connecting takes longer than connectTimeout, the operation makes no
// progress for callTimeout, or the context ends. libvirt cannot interrupt a call, so the call of an abandoned operation continues in its
// goroutine. The context of the operation is cancelled, so the operation returns before its next change. An operation is never
// repeated: after an error, the next run of nixbench completes it.
func (h *Hypervisor) runOperation(ctx context.Context, op func(*session) error) error {
	if err := ctx.Err(); err != nil {
		return h.wrapError("", "connect", err, "")
	}
	own, leave := context.WithCancel(ctx)
	defer leave()
	s := &session{ctx: own, h: h, beats: make(chan struct{}, 1)}
	done := make(chan error, 1)
	go func() { done <- s.run(op) }()
	connected := false
	silence := time.NewTimer(h.connectTimeout)
	defer silence.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-s.beats:
			connected = true
			silence.Reset(h.callTimeout)
		case <-silence.C:
			if !connected {
				return h.newUnreachableError(fmt.Errorf("it did not answer for %s", h.connectTimeout))
			}
			_ = h.Close() // the next operation opens another connection
			return h.wrapError("", "wait for an answer", fmt.Errorf("%w for %s", errNoAnswer, h.callTimeout), "look at the log of libvirtd there, or restart it: systemctl restart libvirtd")
		case <-ctx.Done():
			select {
			case err := <-done:
				return err
			case <-time.After(cancelGrace):
				return h.wrapError("", "wait for an answer", ctx.Err(), "")
			}
		}
	}
}

// query executes an operation with a result. An error gets the node, the operation's name and the fix. After an error, the result is not
// read, because an abandoned operation may still write it.
func query[T any](ctx context.Context, h *Hypervisor, node, op, fix string, f func(*session) (T, error)) (T, error) {
	found := make(chan T, 1)
	if err := h.execute(ctx, node, op, fix, func(s *session) error {
		v, err := f(s)
		found <- v
		return err
	}); err != nil {
		var none T
		return none, err
	}
	return <-found, nil
}

// execute executes an operation. An error gets the node, the operation's name and the fix.
func (h *Hypervisor) execute(ctx context.Context, node, op, fix string, f func(*session) error) error {
	return h.wrapError(node, op, h.runOperation(ctx, f), fix)
}

// run connects to libvirt and executes the operation. If the connection breaks meanwhile, the error says so.
func (s *session) run(op func(*session) error) (err error) {
	if s.conn, s.host, err = s.h.connect(); err != nil {
		return err
	}
	defer func() { _, _ = s.conn.Close() }() // release this operation's reference
	defer func() {
		for _, x := range s.used {
			_ = x.Free()
		}
	}()
	s.reportProgress()
	if err = s.ctx.Err(); err == nil {
		err = op(s)
	}
	if err == nil || s.ctx.Err() != nil {
		return err
	}
	if alive, _ := s.conn.IsAlive(); alive {
		return err
	}
	if inner, ok := errors.AsType[*provider.Error](err); ok {
		err = fmt.Errorf("%s: %w", inner.Op, inner.Err)
	}
	return &provider.Error{Hypervisor: s.h.name, Op: "talk to libvirt", Err: fmt.Errorf("the connection to %s broke: %w", s.h.o.URI, err),
		Fix: "libvirtd was probably restarted: run the command again, which completes what was interrupted"}
}

// reportProgress restarts the callTimeout of runOperation.
func (s *session) reportProgress() {
	select {
	case s.beats <- struct{}{}:
	default:
	}
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

func (s *session) change(what string, do func() error) error {
	if err := s.beforeChange(what); err != nil {
		return err
	}
	return do()
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

func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
