package main

import (
	"encoding/json"
	"time"
)

// streamEvent is one line of nixbench's event stream (docs/events.md).
type streamEvent struct {
	Time     time.Time       `json:"time"`
	Event    string          `json:"event"`
	Phase    string          `json:"phase"`
	Node     string          `json:"node"`
	Text     string          `json:"text"`
	Done     int             `json:"done"`
	Failed   bool            `json:"failed"`
	Code     int             `json:"code"`
	Problems json.RawMessage `json:"problems"`
	Result   json.RawMessage `json:"result"`
}

// usual contains the phases in which a fault can be injected, and about how long each takes. A fault is injected within this time after the
// phase begins. The durations were measured on four busy processor cores.
var usual = map[string]time.Duration{
	"survey":    80 * time.Millisecond,
	"provision": 300 * time.Millisecond,
	"image":     900 * time.Millisecond,
	"evaluate":  200 * time.Millisecond,
	"build":     600 * time.Millisecond,
	"boot":      3 * time.Second,
	"connect":   250 * time.Millisecond,
	"copy":      500 * time.Millisecond,
	"keys":      200 * time.Millisecond,
	"activate":  1500 * time.Millisecond,
	"confirm":   700 * time.Millisecond,
	"remove":    500 * time.Millisecond,
	"reboot":    4 * time.Second,
}

// begins reports whether the event is the beginning of this phase of the whole run or of a node.
func (o streamEvent) begins(phase string) bool {
	if phase == "reboot" { // nixbench reports a reboot as the phase activate, which lasts until the node is reachable again
		phase = "activate"
	}
	return o.Phase == phase && (o.Event == "phase-start" || o.Event == "node-start")
}
