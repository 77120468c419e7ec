package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

// session is a recorded run that holds the cluster's lock.
type session struct {
	eval   *nixeval.Evaluator
	store  *state.Store
	record *runs.Recorder
	send   event.Sink
}

// runRecorded holds the cluster's lock while it runs f, and records the run. The record is also
// written if f fails, but not if the user declined what f asked.
func (a *app) runRecorded(e *nixeval.Evaluator, hive *nixeval.Hive, command string, f func(*session) error) error {
	dir, err := a.locateState(e, hive)
	if err != nil {
		return err
	}
	lock, err := dir.Lock(a.ctx, state.Self(command))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	store, err := lock.Store()
	if err != nil {
		return err
	}
	record, err := runs.Record(lock, runs.Info{
		Args: runs.SafeArgs(os.Args[1:]), Hive: e.Source.String(), Scheduler: hive.Scheduler(), Revision: readGitRevision(a.ctx, e.Source.Dir), Nixbench: readBuildVersion().Version,
	})
	if err != nil {
		return err
	}
	s := &session{eval: e, store: store, record: record, send: func(ev event.Event) {
		record.Event(ev)
		a.ongoing.observe(ev)
		a.view.Event(ev)
	}}
	a.sink = s.send // the record must also contain the events of Nix
	a.recording.Store(true)
	err = f(s)
	if failure.KindOf(err) == failure.Declined { // nothing was done, so there is nothing to record
		return errors.Join(err, record.Discard())
	}
	code := exitCode(a.preferCause(err))
	if endErr := record.End(code, describeForRecord(err)); endErr != nil {
		err = errors.Join(err, endErr)
	}
	_, _ = runs.Prune(lock, runs.Keep) // ignore an error, because the next run also removes old records
	return err
}

// preferCause returns errInterrupted if the command failed after an interrupt signal. If this computer is the probable cause
// of an error of Nix, or of one without a kind, it adds this cause to err. Otherwise it returns err.
func (a *app) preferCause(err error) error {
	if err != nil && errors.Is(context.Cause(a.ctx), errInterrupted) {
		return errInterrupted
	}
	switch failure.KindOf(err) {
	case failure.Evaluation, failure.Build, failure.Nix, failure.Internal:
		if broken := checkEnvironment(); err != nil && broken != nil {
			return errors.Join(broken, err)
		}
	}
	return err
}

// readGitRevision returns the revision of the git tree that contains the hive, with the suffix
// -dirty if the tree has changes. It returns an empty string outside of git.
func readGitRevision(ctx context.Context, dir string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", "-C", dir, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// registerRoots registers closures that were built on this machine as garbage collector roots.
func (a *app) registerRoots(e *nixeval.Evaluator, hive *nixeval.Hive, built map[string]nixeval.Closure) error {
	dir, err := a.locateState(e, hive)
	if err != nil {
		return err
	}
	links := map[string]string{}
	for unit, c := range built {
		links[dir.Root(unit)] = c.Out
	}
	if len(links) == 0 {
		return nil
	}
	if err := dir.Create(); err != nil {
		return err
	}
	if err := e.Keep(a.ctx, links); err != nil {
		return fmt.Errorf("gcroots: %w", err)
	}
	return nil
}
