package activate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/lines"
	"github.com/nixbench/nixbench/deploy/remote"
)

// Dry is what a switch would do, as reported by switch-to-configuration.
type Dry struct {
	Stop, Restart, Reload, Start []string // systemd units
	Lines                        []string // the complete output
}

// dryTimeout is the time limit of a dry activation.
const dryTimeout = 5 * time.Minute

// dryActivate runs `switch-to-configuration dry-activate` of the new system, which changes nothing on the node. It returns res
// with the parsed output of this command.
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
	dry := &Dry{}
	out := &lines.Writer{Each: func(line string) {
		line = strings.ToValidUTF8(line, "�")
		dry.addLine(line)
		a.sendEvent(node, event.NodeLog, event.Activate, line)
	}}
	args := []string{"dry", r.Path, r.Specialisation}
	err = conn.Run(ctx, remote.Cmd{Argv: scriptArgv(nodeScript, args), Name: commandName(args), Stdin: strings.NewReader(nodeScript), Stdout: out, Sudo: true})
	out.Flush()
	res.Dry = dry
	if err != nil {
		for _, line := range dry.Lines[max(0, len(dry.Lines)-10):] {
			err = fmt.Errorf("%w\n  %s", err, line)
		}
		return res, newStepError(node, "dry-activate "+r.Path, err)
	}
	res.Exit = 0
	return res, nil
}

// addLine adds a line of the output of switch-to-configuration to d.Lines. If the line lists systemd units for an action, such as
// a restart, it also adds the units to the field of this action.
func (d *Dry) addLine(line string) {
	d.Lines = append(d.Lines, line)
	what, units, ok := strings.Cut(line, ": ")
	if !ok {
		return
	}
	into, ok := map[string]*[]string{
		"would stop the following units":    &d.Stop,
		"would restart the following units": &d.Restart,
		"would reload the following units":  &d.Reload,
		"would start the following units":   &d.Start,
	}[what]
	if ok {
		*into = append(*into, strings.Split(units, ", ")...)
	}
}
