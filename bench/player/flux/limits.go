package flux

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/bench/player"
)

// limitsScript prints Flux's modules, its configuration, and how the default scheduler is loaded, each followed by an empty line.
// For a scheduler that is not the default one, it prints no settings except the configuration.
const limitsScript = `flux module list && echo && flux config get && echo && { flux modprobe show sched 2> /dev/null || :; }
`

// settingsTables are the tables of Flux's configuration that can limit the rate of jobs, or make Flux refuse jobs.
var settingsTables = []string{"ingest", "job-manager", "policy", "queues", "sched-fluxion-qmanager", "sched-fluxion-resource"}

// Limits implements [player.Player]. None of Flux' limits is a rate, such as jobs per second.
func (p *Player) Limits(ctx context.Context) ([]player.Limit, error) {
	out, err := p.program.RunScript(ctx, limitsScript)
	var limits []player.Limit
	if err == nil {
		limits, err = parseLimits(string(out))
	}
	if err != nil {
		return nil, fmt.Errorf("flux: read the configuration: %w", err)
	}
	return limits, nil
}

func parseLimits(out string) ([]player.Limit, error) {
	modules, rest, _ := strings.Cut(out, "\n\n")
	config, module, _ := strings.Cut(rest, "\n\n")
	scheduler := findScheduler(modules)
	if scheduler == "" {
		return nil, fmt.Errorf("no module of the leader has the service sched: %.200q", modules)
	}
	if !json.Valid([]byte(config)) {
		return nil, fmt.Errorf("flux config get printed %.100q", config)
	}
	limits := []player.Limit{{Name: "scheduler", Value: scheduler}}
	if scheduler != "sched-fluxion-qmanager" { // its settings are in a table
		limits = append(limits, player.Limit{Name: scheduler + ": queue-depth", Value: findQueueDepth(scheduler, module)})
	}
	for _, name := range settingsTables {
		if table := gjson.Get(config, name).Raw; table != "" && table != "{}" && table != "null" {
			limits = append(limits, player.Limit{Name: name, Value: table})
		}
	}
	return limits, nil
}

// findScheduler returns the name of the Flux module that provides the service sched. modules is the output of `flux module list`,
// in which the last field of each line names the services of a module.
func findScheduler(modules string) string {
	for line := range strings.Lines(modules) {
		fields := strings.Fields(line)
		if len(fields) > 1 && slices.Contains(strings.Split(fields[len(fields)-1], ","), "sched") {
			return fields[0]
		}
	}
	return ""
}

// findQueueDepth returns the argument queue-depth with which a scheduler in Python was loaded.
func findQueueDepth(scheduler, module string) string {
	if !json.Valid([]byte(module)) || gjson.Get(module, "name").String() != scheduler {
		return "unknown"
	}
	_, depth, _ := strings.Cut(gjson.Get(module, `args.#(%"queue-depth=*")`).String(), "=")
	return cmp.Or(depth, "8 (default)") // the number of jobs that the schedulers in Python consider at once
}
