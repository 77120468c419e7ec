package slurm

import (
	"context"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/deploy/engine"
)

// clientTimeout is the time limit for a client to get the configuration of the cluster.
const clientTimeout = 30 * time.Second

// waitForClient waits until the commands of SLURM work on the client: it gets the configuration from the controller after it has booted.
func (p *Player) waitForClient(ctx context.Context) error {
	if p.client == "" {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	var last error
	for {
		_, err := p.runOn(wait, p.client, nil, "scontrol", "ping")
		if last == nil || wait.Err() == nil { // the error of a command that the time limit has ended says nothing
			last = err
		}
		switch {
		case err == nil:
			return nil
		case engine.Sleep(wait, engine.PollInterval):
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			return fmt.Errorf("slurm: the client does not reach slurmctld within %v: %w; journalctl -u sackd on %s shows why", clientTimeout, last, p.client)
		}
	}
}

// clocks are the clocks of the events' times. Both are the same without a client.
type clocks struct {
	p                  *Player
	controller, client player.Clocks
}

// dateOn returns a function that reads the clock of a node.
func (p *Player) dateOn(node string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, player.CommandTimeout)
		defer cancel()
		return p.runOn(ctx, node, nil, "date", "+%s%N")
	}
}

// readClocks reads the clocks before a workload.
func (p *Player) readClocks(ctx context.Context) (clocks, error) {
	c := clocks{p: p}
	var err error
	if c.controller.Before, err = player.ReadClock(ctx, p.dateOn(p.Place().Scheduler)); err != nil {
		return c, err
	}
	if c.client = c.controller; p.client != "" {
		c.client.Before, err = player.ReadClock(ctx, p.dateOn(p.client))
	}
	return c, err
}

// readAgain reads the clocks after a workload, and returns doubts.
func (c *clocks) readAgain(ctx context.Context) (doubts []string) {
	read := func(node string, clock *player.Clocks) {
		var found []string
		*clock, found = player.ReadClockAgain(ctx, clock.Before, c.p.dateOn(node))
		for _, d := range found {
			doubts = append(doubts, node+": "+d)
		}
	}
	read(c.p.Place().Scheduler, &c.controller)
	if c.p.client == "" {
		c.client = c.controller
		return doubts
	}
	read(c.p.client, &c.client)
	return doubts
}
