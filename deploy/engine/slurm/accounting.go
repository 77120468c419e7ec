package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

// checkAccounting returns nil if slurmdbd answers and the cluster is registered there with the port of slurmctld. Without
// this port, slurmdbd does not send changes of accounts to slurmctld.
func (e *Engine) checkAccounting(ctx context.Context) error {
	config, err := e.readConfig(ctx)
	if err != nil {
		return errors.New(batch.LastLine(err))
	}
	if config["AccountingStorageType"] != accountingPlugin {
		return fmt.Errorf("slurmctld runs without accounting: AccountingStorageType is %s", config["AccountingStorageType"])
	}
	name := config["ClusterName"]
	out, err := e.runOnController(ctx, "sacctmgr", "--noheader", "--parsable2", "show", "cluster", name, "format=cluster,controlport")
	if err != nil {
		return errors.New(batch.LastLine(err))
	}
	for line := range strings.Lines(out) {
		if cluster, port, ok := strings.Cut(strings.TrimSpace(line), "|"); ok && cluster == name && port != "0" && port != "" {
			return nil
		}
	}
	return fmt.Errorf("slurmctld of the cluster %s is not registered with slurmdbd", name)
}
