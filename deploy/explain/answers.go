package explain

import (
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// removeAnswers returns the events and the end of a run as if the user had answered each question at once. From the time of
// each event, it subtracts the time for which the run had waited for answers before this event.
func removeAnswers(events []event.Event, last time.Time) ([]event.Event, time.Time) {
	var answers []event.Event
	for _, e := range events {
		if e.Kind == event.Answer && e.Time.After(e.Since) {
			answers = append(answers, e)
		}
	}
	shift := func(t time.Time) time.Time {
		var waited time.Duration
		for _, a := range answers {
			if t.After(a.Since) {
				waited += min(a.Time.Sub(a.Since), t.Sub(a.Since))
			}
		}
		return t.Add(-waited)
	}
	events = slices.Clone(events)
	for i := range events {
		events[i].Time = shift(events[i].Time)
	}
	return events, shift(last)
}
