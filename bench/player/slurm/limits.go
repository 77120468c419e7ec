package slurm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/deploy/engine"
)

// schedulerParameters are the parts of the setting SchedulerParameters that limit how many jobs are placed, with their defaults
// in the manual of slurm.conf.
var schedulerParameters = []struct{ name, byDefault string }{
	{"batch_sched_delay", "3"},       // seconds that the main scheduler may wait after the submission or the end of a batch job
	{"sched_interval", "60"},         // seconds between two runs of the main scheduler over all jobs
	{"sched_min_interval", "2"},      // microseconds between two runs of the main scheduler
	{"default_queue_depth", "100"},   // jobs that the main scheduler tests in a run that an event has caused
	{"partition_job_depth", "0"},     // jobs of each partition that the main scheduler tests in a run; 0: no limit
	{"sched_max_job_start", "0"},     // jobs that the main scheduler starts in a run; 0: no limit
	{"max_rpc_cnt", "0"},             // active requests to slurmctld at which the schedulers wait; 0: they do not wait
	{"bf_interval", "30"},            // seconds between two runs of the backfill scheduler
	{"bf_max_job_test", "500"},       // jobs that a run of the backfill scheduler tests
	{"bf_max_job_start", "0"},        // jobs that a run of the backfill scheduler starts; 0: no limit
	{"bf_yield_interval", "2000000"}, // microseconds after which the backfill scheduler lets other requests run
	{"bf_yield_sleep", "500000"},     // microseconds for which the backfill scheduler lets other requests run
}

// flags are the parts of SchedulerParameters without a value that change when jobs are placed.
var flags = []string{"defer", "defer_batch", "bf_continue"}

// Limits implements [player.Player]. None of the limits is a rate: the main scheduler and the backfill scheduler start jobs, and
// how often they run depends on the load.
func (p *Player) Limits(ctx context.Context) ([]player.Limit, error) {
	config, err := p.readConfig(ctx)
	if err != nil {
		return nil, err
	}
	limits := []player.Limit{{Name: "nixbench: sbatch commands at the same time", Value: "1"}}
	for _, name := range []string{"SchedulerType", "MaxJobCount", "MaxArraySize", "SlurmctldParameters"} {
		if config[name] != "" {
			limits = append(limits, player.Limit{Name: "slurmctld: " + name, Value: config[name]})
		}
	}
	var epilog []string // what nodes run after each job; SLURM before 24.05 prints no list
	for _, name := range slices.Sorted(maps.Keys(config)) {
		if (name == "Epilog" || strings.HasPrefix(name, "Epilog[")) && config[name] != "(null)" {
			epilog = append(epilog, config[name])
		}
	}
	limits = append(limits, player.Limit{Name: "slurmd: Epilog", Value: cmp.Or(strings.Join(epilog, ", "),
		"none: after a job, slurmctld starts the next one in its loop, and not before batch_sched_delay")})
	parameters := strings.Split(config["SchedulerParameters"], ",")
	set := engine.ParseProperties(strings.Join(parameters, "\n"))
	for _, s := range schedulerParameters {
		limits = append(limits, player.NewLimit("SchedulerParameters: "+s.name, set[s.name], s.byDefault))
	}
	for _, name := range flags {
		if slices.ContainsFunc(parameters, func(p string) bool { return strings.TrimSpace(strings.SplitN(p, "=", 2)[0]) == name }) {
			limits = append(limits, player.Limit{Name: "SchedulerParameters: " + name, Value: "set"})
		}
	}
	return limits, nil
}

func (p *Player) readConfig(ctx context.Context) (map[string]string, error) {
	out, err := p.runOnController(ctx, "scontrol", "show", "config")
	if err != nil {
		return nil, fmt.Errorf("slurm: read the configuration: %w", err)
	}
	return engine.ParseProperties(string(out)), nil
}

// largestArray is the largest job array that the player submits. MaxArraySize is 1001 by default, and the ids of an array's tasks
// must be smaller.
const largestArray = 1000

// arraySize returns how many jobs the player may submit as one job array.
func (p *Player) arraySize(config map[string]string) int {
	n, err := strconv.Atoi(config["MaxArraySize"])
	if err != nil || !p.arrays {
		return 1 // without arrays, all jobs can be submitted
	}
	return max(1, min(n-1, largestArray))
}

// messageType matches a line of sdiag's output that has the statistics of one message type.
var messageType = regexp.MustCompile(`^\s*(\S+)\s*\(\s*\d+\) count:(\d+)\s`)

// Requests implements [player.Player]. It does not reset the statistics of slurmctld. slurmctld itself resets some of its
// statistics every day.
func (p *Player) Requests(ctx context.Context) ([]player.Request, error) {
	out, err := p.runOnController(ctx, "sdiag")
	if err != nil {
		return nil, fmt.Errorf("slurm: read the number of requests: %w", err)
	}
	requests := parseStatistics(string(out))
	if len(requests) == 0 {
		return nil, fmt.Errorf("slurm: read the number of requests: sdiag printed no statistics by message type: %.100q", out)
	}
	return requests, nil
}

// parseStatistics returns the requests in the output of sdiag, by message type. It ignores the statistics by user that follow,
// because they count the same requests.
func parseStatistics(out string) []player.Request {
	_, byType, _ := strings.Cut(out, "Remote Procedure Call statistics by message type")
	byType, _, _ = strings.Cut(byType, "Remote Procedure Call statistics by user")
	var all []player.Request
	for line := range strings.Lines(byType) {
		if m := messageType.FindStringSubmatch(line); m != nil {
			count, err := strconv.ParseInt(m[2], 10, 64)
			if err == nil {
				all = append(all, player.Request{Program: "slurmctld", Verb: m[1], Count: count})
			}
		}
	}
	return all
}
