package node

import "github.com/nixbench/nixbench/deploy/activate"

// Goal is the last step that apply carries out. Four of the goals are [activate.Goal]s.
type Goal string

const (
	Switch      = Goal(activate.Switch)
	Boot        = Goal(activate.Boot)
	Test        = Goal(activate.Test)
	DryActivate = Goal(activate.DryActivate)
	Push        = Goal("push")        // build and copy, without activation
	UploadKeys  = Goal("upload-keys") // upload only the keys; no system is evaluated
)

// Activates reports whether the goal activates a system or makes it the boot default.
func (g Goal) Activates() bool { return g == Switch || g == Boot || g == Test }

// ActivatesNow reports whether the goal activates systems during the run, and not at the next boot.
func (g Goal) ActivatesNow() bool { return g == Switch || g == Test }
