package slurm

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/bench/player"
)

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
