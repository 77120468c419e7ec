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

// phase is a part of a run in which a fault can be injected.
type phase struct {
	begins func(streamEvent) bool
	usual  time.Duration // about how long the phase takes; a fault is injected within this time after the phase begins
}

// starts returns a function that reports whether an event is the beginning of this phase of the whole run or of a node.
func starts(event string) func(streamEvent) bool {
	return func(o streamEvent) bool {
		return o.Phase == event && (o.Event == "phase-start" || o.Event == "node-start")
	}
}

// phases contains the phases by name. The durations were measured on four busy processor cores.
var phases = map[string]phase{
	"survey":    {begins: starts("survey"), usual: 80 * time.Millisecond},
	"provision": {begins: starts("provision"), usual: 300 * time.Millisecond},
	"image":     {begins: starts("image"), usual: 900 * time.Millisecond},
	"evaluate":  {begins: starts("evaluate"), usual: 200 * time.Millisecond},
	"build":     {begins: starts("build"), usual: 600 * time.Millisecond},
	"boot":      {begins: starts("boot"), usual: 3 * time.Second},
	"connect":   {begins: starts("connect"), usual: 250 * time.Millisecond},
	"copy":      {begins: starts("copy"), usual: 500 * time.Millisecond},
	"keys":      {begins: starts("keys"), usual: 200 * time.Millisecond},
	"activate":  {begins: starts("activate"), usual: 1500 * time.Millisecond},
	"confirm":   {begins: starts("confirm"), usual: 700 * time.Millisecond},
	"remove":    {begins: starts("remove"), usual: 500 * time.Millisecond},
	// nixbench reports a reboot as the phase activate, which lasts until the node is reachable again.
	"reboot": {begins: starts("activate"), usual: 4 * time.Second},
}

// open contains the phases that have begun and not ended, in the order in which they began.
type open []string

// follow returns the phases that are open after the event o.
func (all open) follow(o streamEvent) open {
	key := o.Phase
	if o.Node != "" {
		key += " " + o.Node
	}
	switch o.Event {
	case "phase-start", "node-start":
		return append(all, key)
	case "phase-end", "node-end":
		for i, name := range all {
			if name == key {
				return append(all[:i:i], all[i+1:]...)
			}
		}
	}
	return all
}
