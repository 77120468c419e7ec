package explain

import (
	"cmp"
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
	if len(answers) == 0 {
		return events, last
	}
	slices.SortStableFunc(answers, func(a, b event.Event) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
	shift := func(t time.Time) time.Time {
		var waited time.Duration
		for _, a := range answers {
			if t.After(a.Since) {
				waited += min(a.Time.Sub(a.Since), t.Sub(a.Since))
			}
		}
		return t.Add(-waited)
	}
	shifted := slices.Clone(events)
	for i := range shifted {
		shifted[i].Time = shift(shifted[i].Time)
	}
	return shifted, shift(last)
}
