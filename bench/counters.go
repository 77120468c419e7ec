package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/program"
)

// counters are readings before or after a workload: what the scheduler has used, and what only some players count.
type counters struct {
	usage    map[string]player.Usage
	requests []player.Request
	commands player.CommandUsage

	errUsage, errRequests, errCommands error
}

// readCounters reads the counters of a player. What is read after a workload has the reverse order of what was read before it, so that the readings
// themselves count as little as possible.
func readCounters(ctx context.Context, p player.Player, after bool) counters {
	var c counters
	readings := []func(){
		func() {
			if r, ok := requesterOf(p); ok {
				c.requests, c.errRequests = r.Requests(ctx)
			}
		},
		func() { c.usage, c.errUsage = p.Usage(ctx) },
		func() {
			if m, ok := p.(player.Commander); ok {
				c.commands, c.errCommands = m.CommandUsage(ctx)
			}
		},
	}
	if after {
		slices.Reverse(readings)
	}
	for _, read := range readings {
		read()
	}
	return c
}

// requesterOf returns the player that counts requests. With a program, it is the player of the scheduler.
func requesterOf(p player.Player) (player.Requester, bool) {
	if own, ok := p.(*program.Player); ok {
		p = own.Player
	}
	r, ok := p.(player.Requester)
	return r, ok
}

// addCounters records the processor time and memory of the scheduler, the requests that it received during the workload, where
// the commands of the player ran, and their processor time on the node of the scheduler. A counter that cannot be read makes
// the trial suspect.
func (a *attempt) addCounters(p player.Player, before, after counters) {
	if after.errUsage == nil {
		a.addUsage(before.usage, after.usage)
	} else {
		a.Reasons = append(a.Reasons, "the usage of the scheduler: "+after.errUsage.Error())
	}
	if _, ok := requesterOf(p); ok {
		if err := cmp.Or(before.errRequests, after.errRequests); err != nil {
			a.Reasons = append(a.Reasons, "the number of requests: "+err.Error())
		} else {
			a.Requests = player.SubtractRequests(before.requests, after.requests)
			total := 0.0
			for _, r := range a.Requests {
				if !r.Sent {
					total += float64(r.Count)
				}
			}
			a.Result.Metrics["requests"] = total
		}
	}
	m, ok := p.(player.Commander)
	if !ok {
		return
	}
	place := m.Place()
	a.Place = &place
	err := cmp.Or(before.errCommands, after.errCommands)
	if err == nil && before.commands.Connection != after.commands.Connection {
		err = fmt.Errorf("the connection to %s was lost in between", place.Scheduler)
	}
	if err != nil {
		a.Reasons = append(a.Reasons, "the processor time of nixbench's commands: "+err.Error())
		return
	}
	a.Result.Metrics["command_cpu"] = after.commands.CPU - before.commands.CPU
}

// DescribePlaces returns a sentence for each place, such as a client, where the commands that submit and observe jobs ran.
func DescribePlaces(attempts []Attempt) []string {
	var out []string
	seen := map[player.Place]bool{}
	for _, a := range attempts {
		if a.Place == nil || seen[*a.Place] {
			continue
		}
		seen[*a.Place] = true
		text := fmt.Sprintf("The commands that submit and observe jobs ran on %s, ", a.Place.Commands)
		if a.Place.Commands == a.Place.Scheduler {
			text += "the node of the scheduler, and used its processors."
		} else {
			text += fmt.Sprintf("and the scheduler on %s.", a.Place.Scheduler)
		}
		out = append(out, text)
	}
	return out
}
