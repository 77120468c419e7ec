package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine/batch"
)

// accountingPlugin is the value of AccountingStorageType in a cluster that uses slurmdbd.
const accountingPlugin = "accounting_storage/slurmdbd"

// accountingNode returns the node with slurmdbd, which may be the controller, or an empty string if the hive has no
// accounting.
func (e *Engine) accountingNode() string {
	for _, node := range e.nodesOf(Accounting) {
		return node
	}
	controller := e.controller()
	if s, err := e.settingsOf(controller); err == nil && s.Accounting {
		return controller
	}
	return ""
}

// checkAccounting returns nil if slurmdbd answers and the cluster is registered there.
func (e *Engine) checkAccounting(ctx context.Context) error {
	config, err := e.readConfig(ctx)
	if err != nil {
		return errors.New(batch.LastLine(err))
	}
	if config["AccountingStorageType"] != accountingPlugin {
		return fmt.Errorf("slurmctld runs without accounting: AccountingStorageType is %s", config["AccountingStorageType"])
	}
	name := config["ClusterName"]
	registered, err := e.isAccounted(ctx, name)
	switch {
	case err != nil:
		return errors.New(batch.LastLine(err))
	case !registered:
		return fmt.Errorf("slurmctld of the cluster %s is not registered with slurmdbd", name)
	}
	return nil
}

// isAccounted reports whether a cluster is registered with slurmdbd with the port of slurmctld. Without this port,
// slurmdbd does not send changes of accounts to slurmctld. It returns an error if slurmdbd does not answer.
func (e *Engine) isAccounted(ctx context.Context, cluster string) (bool, error) {
	out, err := e.runOnController(ctx, "sacctmgr", "--noheader", "--parsable2", "show", "cluster", cluster, "format=cluster,controlport")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(out) {
		if name, port, ok := strings.Cut(strings.TrimSpace(line), "|"); ok && name == cluster && port != "0" && port != "" {
			return true, nil
		}
	}
	return false, nil
}

// restartTimeout is the time limit for a restart of slurmctld, which waits 30 seconds for slurmdbd.
const restartTimeout = 90 * time.Second

// registerScript restarts slurmctld so that it takes the id of the cluster from the current slurmdbd. Its argument is the folder of
// slurmctld's state. The file is that of modules/slurm/accounting-daemon.nix.
const registerScript = `rm -f "$0/nixbench-accounting" && systemctl restart slurmctld.service`

// admitAccounting registers the cluster with a slurmdbd whose database is new: slurmctld runs with accounting and does not
// register there by itself.
func (e *Engine) admitAccounting(ctx context.Context) error {
	config, err := e.readConfig(ctx)
	switch {
	case errors.Is(err, errNoController):
		return nil
	case err != nil:
		return err
	case config["AccountingStorageType"] != accountingPlugin:
		return nil // slurmctld restarts when accounting is turned on
	}
	if registered, err := e.awaitAccounting(ctx, config["ClusterName"]); registered || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	_, err = e.Run(ctx, e.controller(), nil, "sh", "-c", registerScript, config["StateSaveLocation"])
	return err
}

// awaitAccounting returns the result of [Engine.isAccounted] as soon as slurmdbd answers.
func (e *Engine) awaitAccounting(ctx context.Context, cluster string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	for {
		registered, err := e.isAccounted(ctx, cluster)
		if err == nil || !batch.Sleep(ctx, batch.PollInterval) {
			return registered, err
		}
	}
}
