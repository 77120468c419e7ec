package event

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// collector stores the events that a sink receives. Waits send from their own goroutines.
type collector struct {
	mu   sync.Mutex
	sent []Event
}

func (c *collector) sink(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, e)
}

func (c *collector) events() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.sent)
}

// words returns the events, each as `kind text`.
func (c *collector) words() string {
	var out []string
	for _, e := range c.events() {
		out = append(out, string(e.Kind)+" "+e.Text)
	}
	return strings.Join(out, ", ")
}

func TestShortWaitsAreNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c collector
		w := Sink(c.sink).Wait(Event{Text: "a lock"})
		time.Sleep(Grace - time.Millisecond)
		w.End()
		time.Sleep(time.Hour)
		if len(c.events()) > 0 {
			t.Error(c.words())
		}
	})
}

// A wait is reported after the grace, with the time at which it began; so are its changes and
// its end.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c collector
		begin := time.Now()
		w := Sink(c.sink).Wait(Event{Node: "a", Phase: Keys, Text: "a lock", Until: begin.Add(time.Minute)})
		time.Sleep(Grace)
		synctest.Wait()
		if got := c.events(); len(got) != 1 || !got[0].Since.Equal(begin) || !got[0].Until.Equal(begin.Add(time.Minute)) || got[0].Node != "a" || got[0].Phase != Keys {
			t.Fatalf("%+v", got)
		}
		w.Change("a lock", begin.Add(time.Minute)) // which is no change
		w.Change("a key", time.Time{})
		w.End()
		w.End()
		w.Change("nothing", time.Time{})
		time.Sleep(time.Hour)
		if want := "wait a lock, wait a key, wait-end a key"; c.words() != want {
			t.Errorf("%s, want %s", c.words(), want)
		}
		if got := c.events(); got[2].Since != got[0].Since {
			t.Error("the end is that of another wait")
		}
	})
}

func TestWaitWithoutSink(t *testing.T) {
	w := Sink(nil).Wait(Event{Text: "a lock"})
	w.Change("a key", time.Time{})
	w.End()
}

// Events that are no waits have neither of the two times in JSON.
func TestWaitJSON(t *testing.T) {
	data, err := json.Marshal(Event{Kind: NodeStart})
	if err != nil || strings.Contains(string(data), "since") || strings.Contains(string(data), "until") {
		t.Errorf("%s, %v", data, err)
	}
}
