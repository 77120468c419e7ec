package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/deploy/failure"
)

// armFlags are the flags about the armed rollback: a node activates its previous system unless nixbench confirms the switch in
// time.
type armFlags struct {
	confirm    time.Duration
	noRollback bool
	noReboot   bool
	settleTime time.Duration
}

func (f *armFlags) addArming(set *pflag.FlagSet) {
	set.DurationVar(&f.confirm, "confirm-timeout", time.Minute, "how long a node waits for a confirmation after its last progress before it rolls back")
	set.BoolVar(&f.noRollback, "no-rollback", false, "do not roll back a node whose switch fails or makes it unreachable")
	set.BoolVar(&f.noReboot, "no-rollback-reboot", false, "do not reboot a node that no client can log in to after its rollback")
	set.DurationVar(&f.settleTime, "settle-time", 3*time.Second, "how long units that the switch has started are watched before it is confirmed; 0: do not watch them")
}

// validateArming validates the flags. confirm is the time limit for the confirmation; 0: no rollback is armed. settleTime is how
// long the node watches the services that the switch has started.
func (f *armFlags) validateArming() (confirm, settleTime time.Duration, err error) {
	switch {
	case f.settleTime < 0 || f.settleTime > 10*time.Minute:
		return 0, 0, failure.NewUsage("--settle-time must be between 0s and 10m (it is %v)", f.settleTime)
	case f.noRollback:
		return 0, f.settleTime, nil
	case f.confirm != 0 && f.confirm < 5*time.Second:
		return 0, 0, failure.NewUsage("--confirm-timeout must be at least 5s (it is %v); use --no-rollback to disable the rollback", f.confirm)
	}
	return f.confirm, f.settleTime, nil
}
