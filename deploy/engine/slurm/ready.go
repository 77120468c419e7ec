package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
)

// WaitReady implements [engine.Engine]. A compute node is ready when its slurmd has registered since its last
// start; the controller, when slurmctld answers; the node with slurmdbd, when slurmdbd answers.
func (e *Engine) WaitReady(ctx context.Context, name string, report engine.Report) error {
	check := func(ctx context.Context) error { return e.checkReady(ctx, name) }
	readLog := func(ctx context.Context) string { return batch.ReadLog(ctx, e.Cluster, name, logOf(e.unitOf(name))) }
	return batch.WaitReady(ctx, name, check, readLog, report)
}

// checkReady returns nil if a member works, and for a node that does not belong to the cluster. Otherwise the
// error is the reason why the member does not work.
func (e *Engine) checkReady(ctx context.Context, name string) error {
	if slices.Contains(e.nodesOf(Accounting), name) {
		return engine.Inspect(ctx, e, name, true)
	}
	nodes, err := e.listNodes(ctx)
	n, isMember := nodes[name]
	switch {
	case err != nil:
		return err
	case name == e.controller():
		return nil
	case !isMember && !slices.Contains(e.nodesOf(Compute), name):
		return nil
	case !isMember:
		return errors.New("it has not registered with the controller")
	case !n.isReady() && !n.wasDown():
		return errors.New("it is " + n.describe())
	}
	return e.checkRegistered(ctx, name, n)
}

// checkRegistered returns an error unless slurmd of the node runs and has registered since its start. The
// controller reports a node as idle for minutes after its slurmd has died. Both times are from the clock of the
// node.
func (e *Engine) checkRegistered(ctx context.Context, name string, n node) error {
	unit, err := e.ReadUnit(ctx, name, "slurmd.service")
	switch {
	case err != nil:
		return err
	case unit.Sub != "running":
		return fmt.Errorf("its slurmd is %s", unit.Sub)
	}
	if start, known := n.slurmdStart(); !known || start.Before(unit.Since) {
		return errors.New("its slurmd has not registered since it was started")
	}
	return nil
}

// Look implements [engine.Inspector]. If the units of a node run, it also asks whether MUNGE works with the controller.
func (e *Engine) Look(ctx context.Context, name string) ([]engine.Fault, error) {
	faults, err := e.Cluster.Look(ctx, name, e.units(name)...)
	if err == nil && len(faults) == 0 && e.unitOf(name) != "" {
		if problem := e.checkMunge(ctx, name); problem != "" {
			faults = append(faults, engine.Fault{Unit: mungeUnit, State: problem, Lasts: true})
		}
	}
	return faults, err
}

// checkMunge describes why munged of a node does not accept what munged of the controller has signed, or returns an empty string.
// slurmctld reports a node whose munged has another key as idle for minutes.
func (e *Engine) checkMunge(ctx context.Context, name string) string {
	controller := e.controller()
	if controller == "" || controller == name {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	credential, err := e.Run(ctx, controller, nil, "munge", "--no-input", "--restrict-uid=0")
	if err != nil {
		return fmt.Sprintf("has nothing to accept, because munged of %s signs nothing: %s", controller, batch.LastLine(err))
	}
	if _, err := e.Run(ctx, name, bytes.NewReader(credential), "unmunge"); err != nil {
		return fmt.Sprintf("does not accept what munged of %s has signed, so they have different keys, or their clocks differ; run nixbench apply: %s", controller, batch.LastLine(err))
	}
	return ""
}

// units returns the units that SLURM needs on a node of the hive, in the order in which they start.
func (e *Engine) units(name string) []string {
	unit := e.unitOf(name)
	switch {
	case unit == "":
		return nil
	case name == e.accountingNode() && unit != accountingUnit:
		return []string{mungeUnit, databaseUnit, accountingUnit, unit}
	case unit == accountingUnit:
		return []string{mungeUnit, databaseUnit, unit}
	}
	return []string{mungeUnit, unit}
}

const (
	mungeUnit    = "munged.service"
	databaseUnit = "mysql.service"
)

// accountingUnit is active when slurmdbd answers.
const accountingUnit = "slurmdbd.service"

// unitOf returns the unit of SLURM's daemon on a node of the hive.
func (e *Engine) unitOf(name string) string {
	switch {
	case slices.Contains(e.nodesOf(Controller), name):
		return "slurmctld.service"
	case slices.Contains(e.nodesOf(Compute), name):
		return "slurmd.service"
	case slices.Contains(e.nodesOf(Accounting), name):
		return accountingUnit
	}
	return ""
}

// logOf returns the filter of journalctl for the log of a unit.
func logOf(unit string) string { return "--unit=" + unit }
