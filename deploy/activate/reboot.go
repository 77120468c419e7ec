package activate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
)

// NewWrongBootError returns the error for a node that has booted another system than the wanted one.
func NewWrongBootError(node, want, booted string) error {
	return failure.On(node, failure.WithKind(failure.Lost, fmt.Errorf("reboot: booted %s instead of %s: check its boot loader", booted, want)))
}

// Reboot reboots a node, waits until the node is reachable and has another boot id, and verifies that it has booted the system of
// its profile.
func (a *Activator) Reboot(ctx context.Context, node string, h Host, timeout time.Duration) (Node, error) {
	before, err := a.Inspect(ctx, node, h, Full)
	if err != nil {
		return before, err
	}
	if before.Last != nil && before.Last.Alive {
		return before, newBusyError(node, before.Last)
	}
	conn, err := h.Conn(ctx)
	if err != nil {
		return before, err
	}
	if err := executeScript(ctx, conn, func(string) {}, "reboot"); err != nil {
		return before, newStepError(node, "reboot", err)
	}
	begin := time.Now()
	wait, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	after, err := a.WaitForBoot(wait, node, h, before.BootID, time.Time{})
	switch {
	case err != nil && ctx.Err() != nil:
		return before, failure.On(node, fmt.Errorf("reboot: %w", context.Cause(ctx)))
	case err != nil:
		err = fmt.Errorf("reboot: no login after %s (%w): check its console", time.Since(begin).Round(time.Second), err)
		return before, failure.On(node, failure.WithKind(failure.Lost, err))
	case before.Profile != "" && after.Booted != before.Profile:
		return after, NewWrongBootError(node, before.Profile, after.Booted)
	}
	return after, nil
}

// WaitForBoot waits until the node has another boot id than `boot`, and returns the node's state. If the node still has the boot
// id `boot` at the time `until` and is not shutting down, nobody has requested the reboot: WaitForBoot then returns the node's
// state too. `until` is zero if the reboot was certainly requested. If the node's machine is off, WaitForBoot starts it: libvirt stops a
// container that reboots, and may fail to start it again. When ctx ends, the error is the last reason why the node could not be inspected.
func (a *Activator) WaitForBoot(ctx context.Context, node string, h Host, boot string, until time.Time) (Node, error) {
	const text = "the node to accept logins after its reboot"
	deadline, _ := ctx.Deadline()
	wait := a.Send.Wait(event.Event{Node: node, Phase: event.Connect, Text: text, Until: deadline})
	defer wait.End()
	err := errors.New("it did not shut down")
	for ctx.Err() == nil {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			continue
		}
		after, failed := a.inspectFresh(ctx, node, h)
		switch {
		case failed != nil:
			if isDown(failed) && a.StartMachine != nil {
				failed = cmp.Or(a.StartMachine(ctx, node), failed)
			}
			if ctx.Err() == nil || after.BootID != "" {
				err = failed
				wait.Change(remote.Reason(err)+"; waits for "+text, deadline)
			}
		case after.BootID != boot,
			!until.IsZero() && time.Now().After(until) && after.System != "stopping":
			return after, nil
		}
	}
	return Node{}, err
}

// inspectFresh inspects the node over a new connection, because a connection from before the reboot may be dead without an error.
func (a *Activator) inspectFresh(ctx context.Context, node string, h Host) (Node, error) {
	ctx, cancel := context.WithTimeout(ctx, maxSilence)
	defer cancel()
	conn, err := h.Fresh(ctx)
	if err != nil {
		return Node{}, err
	}
	defer conn.Close()
	return inspectOn(ctx, node, conn, Request{}, Full)
}
