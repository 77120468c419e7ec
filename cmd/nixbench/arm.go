package main

import (
	"time"

	"github.com/spf13/pflag"
)

// armFlags configure the armed rollback: when a node activates its previous system by itself.
type armFlags struct {
	confirm    time.Duration
	noRollback bool
	settle     time.Duration
}

func (f *armFlags) addArming(set *pflag.FlagSet) {
	set.DurationVar(&f.confirm, "confirm-timeout", time.Minute, "how long a node waits, after its last sign of progress, until it goes back by itself")
	set.BoolVar(&f.noRollback, "no-rollback", false, "leave a node as it is when its switch fails or cuts us off")
	set.DurationVar(&f.settle, "settle-time", 3*time.Second, "how long services that the switch has started must stay up before it counts; 0 does not watch them")
}

// arming validates the flags and returns the times for the deployment. A confirm of 0 means that no
// rollback is armed.
func (f *armFlags) arming() (confirm, settle time.Duration, err error) {
	switch {
	case f.settle < 0 || f.settle > 10*time.Minute:
		return 0, 0, usagef("--settle-time %v: expected a time from 0s to 10m", f.settle)
	case f.noRollback:
		return 0, f.settle, nil
	case f.confirm != 0 && f.confirm < 5*time.Second:
		return 0, 0, usagef("--confirm-timeout %v: a node needs at least 5s; to arm nothing, say --no-rollback", f.confirm)
	}
	return f.confirm, f.settle, nil
}
