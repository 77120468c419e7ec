package activate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// dryTimeout is the time limit of a dry activation.
const dryTimeout = 5 * time.Minute

// dryActivate runs `switch-to-configuration dry-activate` of the new system, which changes nothing on the node. It returns res
// with the changes of systemd units that this command prints.
func (a *Activator) dryActivate(ctx context.Context, node string, h Host, r Request, res Result) (Result, error) {
	conn, err := h.Conn(ctx)
	if err != nil {
		return res, err
	}
	ctx, cancel := context.WithTimeout(ctx, dryTimeout)
	defer cancel()
	until, _ := ctx.Deadline()
	wait := a.Send.Wait(event.Event{Node: node, Phase: event.Activate, Text: "the node's report of what a switch would do", Until: until})
	defer wait.End()
	err = executeScript(ctx, conn, func(line string) {
		res.Log = append(res.Log, line)
		if action, units, ok := strings.Cut(line, " the following units: "); ok {
			res.Dry = append(res.Dry, strings.TrimPrefix(action, "would ")+" "+units)
		}
		a.sendEvent(node, event.NodeLog, event.Activate, line)
	}, "dry", r.Path, r.Specialisation)
	if err != nil {
		for _, line := range res.Log[max(0, len(res.Log)-10):] {
			err = fmt.Errorf("%w\n  %s", err, line)
		}
		return res, newStepError(node, "dry-activate "+r.Path, err)
	}
	res.Exit = 0
	return res, nil
}
