// Package event defines the events of a run. An event is one struct with documented fields and without nested structs.
// The packages below cmd send events; cmd/nixbench/internal/ui renders them for a terminal, as plain lines or as JSON.
//
// The JSON form is an interface of the program, described in docs/events.md:
// fields may be added, never renamed.
package event

import (
	"fmt"
	"time"
)

// Kind is the kind of an event.
type Kind string

const (
	PhaseStart Kind = "phase-start" // Phase begins; Total, if known, is the number of items that Phase processes, such as nodes or images
	PhaseEnd   Kind = "phase-end"   // Phase has ended; Text is a summary, Failed is set if Phase failed
	UnitEnd    Kind = "unit-end"    // the units of the evaluation in Units have finished Phase
	Message    Kind = "message"     // a message of Nix or of nixbench: Level, Text
	BuildStart Kind = "build-start" // the build of derivation Path begins
	BuildLog   Kind = "build-log"   // Text is a line of Path's build log
	BuildEnd   Kind = "build-end"   // the build of derivation Path has ended, with or without success
	CopyStart  Kind = "copy-start"  // the store path Path begins to be fetched or copied
	CopyEnd    Kind = "copy-end"    // store path Path was fetched or copied
	Progress   Kind = "progress"    // Phase has completed Done of Total items (in Build, derivations); Text is what Phase waits for

	NodeStart    Kind = "node-start"    // Node begins Phase; Text describes it
	NodeProgress Kind = "node-progress" // Node has transferred Done of Total bytes in Phase; Text is what the node waits for
	NodeLog      Kind = "node-log"      // Text is a line that Node printed during Phase; in a copy, Path is the path that is being copied
	NodeEnd      Kind = "node-end"      // Node has finished Phase; Text is a summary, Failed is set if Phase failed; in a copy, Done bytes of the closure's Total were copied
	NodeResult   Kind = "node-result"   // Node has finished all phases of the run; Text is a summary, Failed is set if the run failed on Node

	// [Sink.Wait] sends the following events.
	Waiting Kind = "wait"     // Phase of Node has waited for Text since Since, and waits until Until at most
	WaitEnd Kind = "wait-end" // the wait of Phase of Node that began at Since is over

	Answer Kind = "answer" // the user has answered a question that was asked at Since; explain shows this time as a phase, and runs does not count it
)

// Phase is a part of a run, such as the evaluation. The constants are in the order in which the phases begin.
type Phase string

const (
	Survey   Phase = "survey"
	Evaluate Phase = "evaluate"
	Build    Phase = "build"

	// The phases Provision and Image take place while systems are evaluated and built.
	Provision Phase = "provision" // all machines, from the first inspection until all machines are ready
	Image     Phase = "image"     // the images that new machines boot from
	Boot      Phase = "boot"      // the boot of one machine, until the machine is ready

	Deploy   Phase = "deploy" // the deployment of nodes; contains all following phases
	Connect  Phase = "connect"
	Copy     Phase = "copy"
	Keys     Phase = "keys"
	Drain    Phase = "drain" // a node is drained before nixbench changes the node, and uncordoned after the change
	Activate Phase = "activate"
	Confirm  Phase = "confirm"
	Check    Phase = "check"
	Stop     Phase = "stop"   // the machine of a node is shut down
	Remove   Phase = "remove" // machines are removed: those that are no longer in the hive, or all machines of the cluster
)

// Event is an event of a run. Fields that do not apply are empty.
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

// Sink receives events. It is called from many goroutines and must not block for long.
type Sink func(Event)

// Send sets the time of the event e and passes e to the sink. A nil Sink discards events.
func (s Sink) Send(e Event) {
	if s == nil {
		return
	}
	e.Time = time.Now()
	s(e)
}

// Note sends a message that requires no action of the user.
func (s Sink) Note(format string, args ...any) { s.NoteOn("", format, args...) }

// NoteOn is like Note, for a message about a node.
func (s Sink) NoteOn(node, format string, args ...any) {
	s.Send(Event{Kind: Message, Level: "note", Node: node, Text: fmt.Sprintf(format, args...)})
}

// Warn sends a warning, a message about something that the user should change.
func (s Sink) Warn(format string, args ...any) { s.WarnOn("", format, args...) }

// WarnOn is like Warn, for a message about a node.
func (s Sink) WarnOn(node, format string, args ...any) {
	s.Send(Event{Kind: Message, Level: "warning", Node: node, Text: fmt.Sprintf(format, args...)})
}
