package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
)

// accountingNode returns the node on which slurmdbd runs. This may be the controller. accountingNode returns an empty string if
// the hive has no accounting.
func (c *client) accountingNode() string {
	if node := c.FirstOf(Accounting); node != "" {
		return node
	}
	if s, err := c.settingsOf(c.Node()); err == nil && s.Accounting {
		return c.Node()
	}
	return ""
}

// checkAccounting returns nil if slurmdbd answers and the cluster is registered with slurmdbd.
func (e *Engine) checkAccounting(ctx context.Context) error {
	config, err := e.readConfig(ctx)
	if err != nil {
		return engine.LastLine(err)
	}
	if !config.usesAccounting() {
		return fmt.Errorf("slurmctld runs without accounting: AccountingStorageType is %s", config["AccountingStorageType"])
	}
	name := config["ClusterName"]
	registered, err := e.isAccounted(ctx, name)
	switch {
	case err != nil:
		return engine.LastLine(err)
	case !registered:
		return fmt.Errorf("slurmctld of the cluster %s is not registered with slurmdbd", name)
	}
	return nil
}

// isAccounted reports whether slurmdbd has registered the cluster with the port of slurmctld. Without this port, slurmdbd does
// not send changes of accounts to slurmctld. isAccounted returns an error if slurmdbd does not answer.
func (c *client) isAccounted(ctx context.Context, cluster string) (bool, error) {
	out, err := c.RunOnHead(ctx, "sacctmgr", "--noheader", "--parsable2", "show", "cluster", cluster, "format=cluster,controlport")
	for line := range strings.Lines(out) {
		if name, port, ok := strings.Cut(strings.TrimSpace(line), "|"); ok && name == cluster && port != "0" && port != "" {
			return true, nil
		}
	}
	return false, err
}

// restartTimeout is the time limit for a restart of slurmctld, which waits 30 seconds for slurmdbd.
const restartTimeout = 90 * time.Second

// registerScript restarts slurmctld, so that slurmctld takes the id of the cluster from the current slurmdbd. $0 is the folder of
// slurmctld's state. Without the file nixbench-accounting, the unit of slurmctld accepts a new id (see
// modules/slurm/accounting-daemon.nix).
const registerScript = `rm -f "$0/nixbench-accounting" && systemctl restart slurmctld.service`

// admitAccounting registers the cluster with a slurmdbd whose database is new. A slurmctld that already runs with accounting does
// not register with a new database by itself.
func (e *Engine) admitAccounting(ctx context.Context) error {
	config, err := e.readConfig(ctx)
	switch {
	case errors.Is(err, batch.ErrAbsent):
		return nil
	case err != nil:
		return err
	case !config.usesAccounting():
		return nil // slurmctld does not use accounting yet, and restarts when accounting is turned on
	}
	registered, err := await(ctx, func(ctx context.Context) (bool, error) { return e.isAccounted(ctx, config["ClusterName"]) })
	if registered || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	_, err = e.Run(ctx, e.Node(), nil, "sh", "-c", registerScript, config["StateSaveLocation"])
	return err
}
