// Package event is what the core tells whoever watches: one flat, documented
// value per thing that happened. The core only sends events; rendering them for a
// terminal, as plain lines or as JSON is the business of cmd/nixbench/internal/ui.
//
// The JSON form is an interface of the program, described in docs/events.md:
// fields may be added, never renamed.
package event

import "time"

// Kind says what happened.
type Kind string

const (
	PhaseStart Kind = "phase-start" // Phase begins; Total, if known, is its size in units
	PhaseEnd   Kind = "phase-end"   // Phase is over; Text sums it up, Failed says how
	UnitEnd    Kind = "unit-end"    // one or more Units are through Phase
	Message    Kind = "message"     // a line of Nix's own: Level, Text
	BuildStart Kind = "build-start" // derivation Path is being built
	BuildLog   Kind = "build-log"   // Text is a line of Path's build log
	BuildEnd   Kind = "build-end"   // derivation Path was built, or not
	CopyStart  Kind = "copy-start"  // store path Path is being fetched or copied
	CopyEnd    Kind = "copy-end"    // and has arrived
	Progress   Kind = "progress"    // Phase stands at Done of Total: of a build, derivations; Text says what it waits for

	NodeStart    Kind = "node-start"    // Node begins Phase; Text says with what
	NodeProgress Kind = "node-progress" // Node stands at Done of Total bytes of Phase; Text says what it waits for
	NodeLog      Kind = "node-log"      // Text is a line that Node printed during Phase
	NodeEnd      Kind = "node-end"      // Node is through Phase; Text sums it up, Failed says how; of a copy, Done bytes came of the closure's Total
	NodeResult   Kind = "node-result"   // Node is through all phases of the run; Text sums it up, Failed says how

	// See [Sink.Wait], which sends these two.
	Waiting Kind = "wait"     // since Since, and until Until at most, Text is waited for, for Phase of Node
	WaitEnd Kind = "wait-end" // the wait of this Phase and Node that began at Since is over
)

// Phase is a stage of a run, in the order in which they run.
type Phase string

const (
	Survey   Phase = "survey"
	Evaluate Phase = "evaluate"
	Build    Phase = "build"

	// These go on while systems are evaluated and built.
	Provision Phase = "provision" // machines, from the first look to the last that is ready
	Image     Phase = "image"     // what new machines boot from
	Boot      Phase = "boot"      // one machine, until it is ready

	Deploy   Phase = "deploy" // all that follows, seen as one
	Connect  Phase = "connect"
	Copy     Phase = "copy"
	Keys     Phase = "keys"
	Drain    Phase = "drain" // work is taken from a node that is about to change, and given back
	Activate Phase = "activate"
	Confirm  Phase = "confirm"
	Check    Phase = "check"
	Remove   Phase = "remove" // machines that the hive no longer has, or all
)

// Event is one thing that happened. Fields that do not apply are empty.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   Kind      `json:"event"`
	Phase  Phase     `json:"phase,omitempty"`
	Units  []string  `json:"units,omitempty"`
	Node   string    `json:"node,omitempty"`
	Path   string    `json:"path,omitempty"`
	Level  string    `json:"level,omitempty"`
	Text   string    `json:"text,omitempty"`
	Done   int       `json:"done,omitempty"`
	Total  int       `json:"total,omitempty"`
	Failed bool      `json:"failed,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"`
}

// Sink takes events. It is called from many goroutines and must not block for long.
type Sink func(Event)

// Send stamps e and passes it on; a nil Sink drops it.
func (s Sink) Send(e Event) {
	if s == nil {
		return
	}
	e.Time = time.Now()
	s(e)
}
