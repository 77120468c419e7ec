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
		return e.checkUnit(ctx, name, accountingUnit)
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
	case !n.isReady():
		return errors.New("it is " + n.describe())
	}
	return e.checkRegistered(ctx, name, n)
}

// checkRegistered returns an error unless slurmd of the node runs and has registered since its start. The
// controller reports a node as idle for minutes after its slurmd has died. Both times are from the clock of the
// node.
func (e *Engine) checkRegistered(ctx context.Context, name string, n node) error {
	unit, err := batch.ReadUnit(ctx, e.Cluster, name, "slurmd.service")
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

// Inspect implements [engine.Inspector]: it checks that SLURM's daemon runs on the node, and that MUNGE works with the controller.
func (e *Engine) Inspect(ctx context.Context, name string) error {
	unit := e.unitOf(name)
	if unit == "" {
		return nil
	}
	if err := e.checkUnit(ctx, name, unit); err != nil {
		return err
	}
	return e.checkMunge(ctx, name)
}

// checkMunge returns an error unless munged of a node accepts what munged of the controller has signed. slurmctld reports a node
// whose munged has another key as idle for minutes.
func (e *Engine) checkMunge(ctx context.Context, name string) error {
	controller := e.controller()
	if controller == "" || controller == name {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	credential, err := e.Run(ctx, controller, nil, "munge", "--no-input", "--restrict-uid=0")
	if err != nil {
		return fmt.Errorf("munged of %s signs nothing: %s", controller, batch.LastLine(err))
	}
	if _, err := e.Run(ctx, name, bytes.NewReader(credential), "unmunge"); err != nil {
		return fmt.Errorf("its munged does not accept what munged of %s has signed, so they have different keys, or their clocks differ; run nixbench apply: %s", controller, batch.LastLine(err))
	}
	return nil
}

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

// checkUnit returns an error unless a unit on a node runs. The error contains the last line of the unit's log.
func (e *Engine) checkUnit(ctx context.Context, node, unit string) error {
	return batch.CheckUnit(ctx, e.Cluster, node, unit, logOf(unit))
}

// logOf returns the filter of journalctl for the log of a unit.
func logOf(unit string) string { return "--unit=" + unit }
