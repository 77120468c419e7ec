package event

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watch returns a sink that appends the events to got.
func watch(got *[]Event) Sink { return func(e Event) { *got = append(*got, e) } }

func words(events []Event) string {
	var out []string
	for _, e := range events {
		out = append(out, string(e.Kind)+" "+e.Text)
	}
	return strings.Join(out, ", ")
}

func TestShortWaitsAreNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Event
		w := watch(&got).Wait(Event{Text: "a lock"})
		time.Sleep(Grace - time.Millisecond)
		w.End()
		time.Sleep(time.Hour)
		if len(got) > 0 {
			t.Error(words(got))
		}
	})
}

// A wait is reported after the grace, with the time at which it began; so are its changes and
// its end.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Event
		begin := time.Now()
		w := watch(&got).Wait(Event{Node: "a", Phase: Keys, Text: "a lock", Until: begin.Add(time.Minute)})
		time.Sleep(Grace)
		synctest.Wait()
		if len(got) != 1 || !got[0].Since.Equal(begin) || !got[0].Until.Equal(begin.Add(time.Minute)) || got[0].Node != "a" || got[0].Phase != Keys {
			t.Fatalf("%+v", got)
		}
		w.Change("a lock", begin.Add(time.Minute)) // which is no change
		w.Change("a key", time.Time{})
		w.End()
		w.End()
		w.Change("nothing", time.Time{})
		w.Restart("nothing", time.Time{})
		time.Sleep(time.Hour)
		if want := "wait a lock, wait a key, wait-end a key"; words(got) != want {
			t.Errorf("%s, want %s", words(got), want)
		}
		if got[2].Since != got[0].Since {
			t.Error("the end is that of another wait")
		}
	})
}

// Each repetition of an awaited event, such as a heartbeat of a node, begins a new wait.
func TestWaitRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Event
		w := watch(&got).Wait(Event{Text: "a sign"})
		for range 10 {
			time.Sleep(Grace / 2)
			w.Restart("a sign", time.Time{})
		}
		if len(got) > 0 {
			t.Errorf("%s, though the signs came", words(got))
		}
		time.Sleep(Grace)
		synctest.Wait()
		w.Restart("a sign", time.Time{})
		time.Sleep(Grace)
		synctest.Wait()
		if want := "wait a sign, wait-end a sign, wait a sign"; words(got) != want {
			t.Errorf("%s, want %s", words(got), want)
		}
		if got[1].Since != got[0].Since || got[2].Since == got[0].Since {
			t.Error("two waits are not told apart by Since")
		}
		w.End()
	})
}

func TestWaitWithoutSink(t *testing.T) {
	w := Sink(nil).Wait(Event{Text: "a lock"})
	w.Change("a key", time.Time{})
	w.Restart("nothing", time.Time{})
	w.End()
}

// Events that are no waits have neither of the two times in JSON.
func TestWaitJSON(t *testing.T) {
	data, err := json.Marshal(Event{Kind: NodeStart})
	if err != nil || strings.Contains(string(data), "since") || strings.Contains(string(data), "until") {
		t.Errorf("%s, %v", data, err)
	}
}
