package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/deploy/engine"
)

// WaitReady implements [engine.Engine]. A compute node is ready when its slurmd has registered after its last start. The
// controller is ready when slurmctld answers, and the node with slurmdbd when slurmdbd answers.
func (e *Engine) WaitReady(ctx context.Context, name string, report engine.Report) error {
	return engine.AwaitReady(ctx, name, report, func(ctx context.Context) error { return e.checkReady(ctx, name) },
		func(ctx context.Context) string { return e.ReadLog(ctx, name, e.UnitOf(name)) })
}

// checkReady returns nil if the node works, or if it does not belong to the cluster.
func (e *Engine) checkReady(ctx context.Context, name string) error {
	if name == e.FirstOf(Accounting) {
		return engine.Inspect(ctx, e, name, true)
	}
	nodes, err := e.Nodes(ctx)
	n, isMember := nodes[name]
	switch {
	case err != nil:
		return err
	case name == e.Node():
		return nil
	case !isMember && !e.isComputeNode(name):
		return nil
	case !isMember:
		return errors.New("it has not registered with the controller")
	case !n.isReady() && !n.isSetDown():
		return errors.New("it is " + n.describe())
	}
	return e.checkRegistered(ctx, name, n)
}

// checkRegistered returns an error unless the slurmd of the node runs and has registered since its start. It does not rely on the state
// in SLURM: the controller reports a node as idle for minutes after its slurmd has died. Both times are from the clock of the node.
func (e *Engine) checkRegistered(ctx context.Context, name string, n node) error {
	unit, err := e.ReadUnit(ctx, name, "slurmd.service")
	switch {
	case err != nil:
		return err
	case unit.Sub != "running":
		return fmt.Errorf("its slurmd is %s", unit.Sub)
	}
	if n.slurmdStart().Before(unit.Since) {
		return errors.New("its slurmd has not registered since it was started")
	}
	return nil
}

// FindFaults implements [engine.Inspector]. If the node's systemd units run, FindFaults also tests whether MUNGE accepts messages from the
// controller.
func (e *Engine) FindFaults(ctx context.Context, name string) ([]engine.Fault, error) {
	faults, err := e.Cluster.FindFaults(ctx, name, e.units(name)...)
	if err == nil && len(faults) == 0 && e.UnitOf(name) != "" {
		if problem := e.checkMunge(ctx, name); problem != "" {
			faults = append(faults, engine.Fault{Unit: mungeUnit, State: problem, Lasts: true})
		}
	}
	return faults, err
}

// checkMunge describes why the munged of a node does not accept a message that the munged of the controller has signed, or
// returns an empty string. The check is needed because slurmctld reports a node with another MUNGE key as idle for minutes.
func (e *Engine) checkMunge(ctx context.Context, name string) string {
	controller := e.Node()
	if controller == "" || controller == name {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, engine.CommandTimeout)
	defer cancel()
	credential, err := e.Command(ctx, controller, "munge", "--no-input", "--restrict-uid=0")
	if err != nil {
		return fmt.Sprintf("has nothing to accept, because munged of %s signs nothing: %v", controller, engine.LastLine(err))
	}
	if _, err := e.Run(ctx, name, bytes.NewReader(credential), "unmunge"); err != nil {
		return fmt.Sprintf("does not accept what munged of %s has signed, so they have different keys, or their clocks differ; run nixbench apply: %v", controller, engine.LastLine(err))
	}
	return ""
}

// units returns the systemd units that SLURM needs on a node of the hive, in the order in which they start.
func (e *Engine) units(name string) []string {
	unit := e.UnitOf(name)
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
	mungeUnit      = "munged.service"
	databaseUnit   = "mysql.service"
	accountingUnit = "slurmdbd.service" // the systemd unit becomes active when slurmdbd answers
)

// UnitOf implements [batch.System]. It returns the systemd unit of SLURM's daemon on a node of the hive.
func (c *client) UnitOf(name string) string {
	return map[string]string{Controller: "slurmctld.service", Compute: "slurmd.service", Accounting: accountingUnit}[c.Member(name).Role]
}
