// Package health runs the health checks of nodes, deployment.healthChecks. A check is an HTTP request, a TCP connection or a
// command. It runs on the node, through nixbench's connection to the node, or on this computer.
//
//	checks, err := health.Of(ctx, fleet, node)
//	err = checks.Await(ctx, event.Check, send) // until each check passes or its time is over
//	err = checks.Probe(ctx)                    // once
//
// What a check receives from a node has a limit of size and time. Errors contain the beginning of it, without control characters.
package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

type Checks struct {
	node   string
	host   *remote.Host // nil if there are no checks
	ByName map[string]nixeval.HealthCheck
}

// Of returns the health checks that the hive has for a node.
func Of(ctx context.Context, f *fleet.Fleet, n nixeval.Node) (Checks, error) {
	u := f.Hive().Unit(n.Unit)
	if u == nil || len(u.Deployment.HealthChecks) == 0 {
		return Checks{}, nil
	}
	h, err := f.Host(ctx, n)
	if err != nil {
		return Checks{}, err
	}
	return Checks{n.Name, h, u.Deployment.HealthChecks}, nil
}

// Limit returns after which time Await ends at the latest. It is 0 if there are no checks.
func (c Checks) Limit() time.Duration {
	limit := time.Duration(0)
	for _, one := range c.ByName {
		limit = max(limit, one.Limit())
	}
	return limit
}

// Await runs all checks at the same time, each until it passes. When the time of one is over, it ends the others too. The error has one
// line, with each check that has not passed, and its last answer. If ctx is cancelled, the error is the cause of this. phase is the
// phase in the events about the wait.
func (c Checks) Await(ctx context.Context, phase event.Phase, send event.Sink) error {
	awaiting, end := context.WithCancel(ctx)
	defer end()
	err := c.each(func(name string) error {
		err := c.await(awaiting, name, phase, send)
		if err != nil {
			end()
		}
		return err
	})
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	return err
}

// Probe runs all checks once, at the same time. The error is like that of Await.
func (c Checks) Probe(ctx context.Context) error {
	return c.each(func(name string) error {
		ctx, cancel := context.WithTimeout(ctx, attemptLimit(c.ByName[name]))
		defer cancel()
		return c.attempt(ctx, c.ByName[name])
	})
}

// each calls run for all checks at the same time. The error has one line, with the name and the error of each check that has failed.
func (c Checks) each(run func(name string) error) error {
	err := fleet.ForAll(nixeval.SortedNames(c.ByName), func(name string) error {
		if err := run(name); err != nil {
			return fmt.Errorf("health check %s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return err
}

// await repeats one check until it passes, its time is over, or ctx ends.
func (c Checks) await(ctx context.Context, name string, phase event.Phase, send event.Sink) error {
	one, begin := c.ByName[name], time.Now()
	until := begin.Add(one.Limit())
	wait := send.Wait(event.Event{Node: c.node, Phase: phase, Text: "health check " + name, Until: until})
	defer wait.End()
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	attempts, last := 0, ""
	err := check.Until(ctx, check.Condition{
		Every: time.Duration(one.Interval) * time.Second, Limit: attemptLimit(one),
		Probe: func(ctx context.Context) error {
			attempts++
			return c.attempt(ctx, one)
		},
	}, func(err error) {
		last = err.Error()
		wait.Change("health check "+name+": "+last, until)
	})
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s (%s in %v)", last, event.Count(attempts, "attempt"), min(time.Since(begin).Round(time.Second), one.Limit()))
}
