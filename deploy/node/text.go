package node

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/deploy/activate"
)

// formatActivation describes the changes of a successful activation.
func formatActivation(result activate.Result, before activate.Node) string {
	if !result.Changed {
		return "unchanged"
	}
	var text string
	switch result.Outcome {
	case activate.BootDefault:
		text = fmt.Sprintf("generation %d boots next", result.After.Generation)
		if result.After.Current == result.After.Profile {
			text = fmt.Sprintf("ran already; now it is generation %d", result.After.Generation)
		}
	case activate.Activated:
		text = "runs until the next boot"
	case activate.Committed:
		text = fmt.Sprintf("generation %d → %d", before.Generation, result.After.Generation)
		if before.Generation == 0 {
			text = fmt.Sprintf("generation %d, the first", result.After.Generation)
		}
	}
	if len(result.AlreadyFailing) > 0 {
		text += "; failed before, too: " + strings.Join(result.AlreadyFailing, ", ")
	}
	if result.RebootNeeded() {
		text += "; reboot for the new kernel"
	}
	return text
}

func formatDryActivation(result activate.Result) string {
	text := formatUnitChanges(result.Dry)
	var unknown *activate.UnknownProfileError
	if errors.As(result.Refused, &unknown) {
		text += "; but apply would refuse to replace " + unknown.Path + ", which was not deployed from here"
	}
	return text
}

// formatUnitChanges returns which systemd units a switch would stop, restart, reload and start. A nil d means that the switch
// would change nothing.
func formatUnitChanges(d *activate.Dry) string {
	if d == nil {
		return "nothing would change"
	}
	var parts []string
	for _, p := range []struct {
		verb  string
		units []string
	}{{"stop", d.Stop}, {"restart", d.Restart}, {"reload", d.Reload}, {"start", d.Start}} {
		if len(p.units) > 0 {
			parts = append(parts, p.verb+" "+strings.Join(p.units, ", "))
		}
	}
	if len(parts) == 0 {
		return "would change no unit"
	}
	return "would " + strings.Join(parts, "; ")
}
