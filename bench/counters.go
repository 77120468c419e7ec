package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/program"
)

// counters contains the values of counters before or after a workload: the scheduler's use of resources, and values that only some players
// count, such as requests.
type counters struct {
	usage    map[string]player.Usage
	requests []player.Request

	errUsage, errRequests error
}

// readCounters reads the counters of a player. After a workload it reads the counters in the reverse order, so that the differences
// contain as little as possible of the readings themselves.
func readCounters(ctx context.Context, p player.Player, after bool) counters {
	var c counters
	readings := []func(){
		func() {
			if r, ok := requesterOf(p); ok {
				c.requests, c.errRequests = r.Requests(ctx)
			}
		},
		func() { c.usage, c.errUsage = p.Usage(ctx) },
	}
	if after {
		slices.Reverse(readings)
	}
	for _, read := range readings {
		read()
	}
	return c
}

// requesterOf returns the player that counts requests. If the program of a workload plays the workload, this is the scheduler's own player.
func requesterOf(p player.Player) (player.Requester, bool) {
	if own, ok := p.(*program.Player); ok {
		p = own.Player
	}
	r, ok := p.(player.Requester)
	return r, ok
}

// addCounters records the processor time and memory of the scheduler, and the requests that the scheduler received during the workload. It
// also records where the player's commands ran. A counter that cannot be read makes
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
	if m, ok := p.(interface{ Place() player.Place }); ok {
		a.Place = new(m.Place())
	}
	if m, ok := p.(interface{ Image() string }); ok {
		a.Image = m.Image()
	}
}

// DescribePlaces returns a sentence for each place where the commands that submit and observe jobs ran, such as a client node.
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

// DescribeStamps returns a sentence if jobs of the attempts have not stamped their first and last instruction.
func DescribeStamps(attempts []Attempt) []string {
	without, lost := 0, 0
	for _, a := range attempts {
		switch {
		case a.withoutStamps():
			without++
		case a.Result.Unstamped > 0:
			lost++
		}
	}
	switch {
	case without > 0:
		return []string{fmt.Sprintf("The jobs of %d of %d trials do not tell when they execute their first and last instruction, so wait, start, end, slowdown and gang_skew are absent in all cells.",
			without, len(attempts))}
	case lost > 0:
		return []string{fmt.Sprintf("In %d of %d trials, some jobs did not tell when they executed their first and last instruction, so these trials have no wait, start, end, slowdown and gang_skew.",
			lost, len(attempts))}
	}
	return nil
}
