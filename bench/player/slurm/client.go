package slurm

import (
	"context"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// clientTimeout is how long a client (a node that only submits jobs) may take to get the configuration of the cluster.
const clientTimeout = 30 * time.Second

// waitForClient waits until the commands of SLURM work on the client (the node that submits jobs). After its boot, a client has
// to get the configuration from the controller.
func (p *Player) waitForClient(ctx context.Context) error {
	if p.Client == "" {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	var last error
	err := engine.Poll(wait, engine.PollInterval, func() (bool, error) {
		_, err := p.RunLong(wait, p.Client, nil, "scontrol", "ping")
		if last == nil || wait.Err() == nil { // an error of a command that was ended by the time limit is no reason
			last = err
		}
		return err == nil, nil
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("slurm: the client does not reach slurmctld within %v: %w; journalctl -u sackd on %s shows why", clientTimeout, last, p.Client)
}
