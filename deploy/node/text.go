package node

import (
	"cmp"
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

// formatDryActivation describes which systemd units a switch would change.
func formatDryActivation(result activate.Result) string {
	text := "would " + cmp.Or(strings.Join(result.Dry, "; "), "change no unit")
	var unknown *activate.UnknownProfileError
	if errors.As(result.Refused, &unknown) {
		text += "; but apply would refuse to replace " + unknown.Path + ", which was not deployed from here"
	}
	return text
}
