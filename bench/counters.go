package bench

import (
	"cmp"
	"fmt"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/stats"
)

// counters contains the values of counters before or after a workload: the scheduler's use of resources, and values that only some players
// count, such as requests.
type counters struct {
	usage                 map[string]player.Usage
	requests              []player.Request
	errUsage, errRequests error
}

// addCounters records the processor time and memory of the scheduler, and the requests that the scheduler received during the workload. A
// counter that cannot be read is a reason.
func (a *attempt) addCounters(before, after counters) {
	if after.errUsage == nil {
		a.addUsage(before.usage, after.usage)
	} else {
		a.Reasons = append(a.Reasons, "the usage of the scheduler: "+after.errUsage.Error())
	}
	if err := cmp.Or(before.errRequests, after.errRequests); err != nil {
		a.Reasons = append(a.Reasons, "the number of requests: "+err.Error())
	} else if after.requests != nil {
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

// DescribeStamps returns a sentence if the jobs of some attempts have not stamped their first and last instruction.
func DescribeStamps(attempts []Attempt) []string {
	without := len(stats.Keep(attempts, Attempt.withoutStamps))
	if without == 0 {
		return nil
	}
	return []string{fmt.Sprintf("The jobs of %d of %d trials do not tell when they execute their first and last instruction, so wait, start, end, slowdown and gang_skew are absent in all cells.",
		without, len(attempts))}
}
