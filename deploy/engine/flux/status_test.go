package flux

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// What Flux printed while jobs ran: compute-1 is drained and has jobs, compute-2 has jobs, the others do not exist.
func TestParseStatus(t *testing.T) {
	s, err := parseStatus(read(t, "status"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]node{
		"leader-1":   {online: true},
		"compute-1":  {online: true, drained: true, busy: true, reason: reason},
		"compute-2":  {online: true, busy: true},
		"compute-64": {},
	} {
		if got, configured := s.nodes[name]; got != want || !configured {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if len(s.nodes) != 65 || len(s.queues) != 1 || !s.queues[0].started {
		t.Errorf("%d nodes, %+v", len(s.nodes), s.queues)
	}
	for _, broken := range []string{"", "avail|online|c-[1-2]|\n", "avail|online\n\nScheduling is started\n\n", "avail|online|c-[2-1]|\n\nScheduling is started\n\n", "avail|online|c-1|\n\nScheduling is started\n"} {
		if s, err := parseStatus(broken); err == nil {
			t.Errorf("%q: %+v", broken, s)
		}
	}
}

func TestParseQueues(t *testing.T) {
	for text, want := range map[string][]queue{
		read(t, "queue-stopped"): {{reason: reason}},
		"batch: Job submission is enabled\nbatch: Scheduling is started\ndebug: Job submission is disabled: Scheduling is odd\ndebug: Scheduling is stopped\n": {{name: "batch", started: true}, {name: "debug"}},
	} {
		if got := parseQueues(text, nil); !slices.Equal(got, want) {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

func TestExpandHosts(t *testing.T) {
	for list, want := range map[string]string{
		"":                         "",
		"head":                     "head",
		"head,c-[1-3,07-08,11],d1": "head c-1 c-2 c-3 c-07 c-08 c-11 d1",
		"a[9-10]b":                 "a9b a10b",
		"a[1":                      "error",
		"a[1-x]":                   "error",
		"a[2-1]":                   "error",
		"a[0-4000000000]":          "error",
		",":                        "error",
	} {
		got, err := expandHosts(list)
		text := strings.Join(got, " ")
		if err != nil {
			text = "error"
		}
		if text != want {
			t.Errorf("%q: %q, %v, want %q", list, text, err, want)
		}
	}
}

func FuzzExpandHosts(f *testing.F) {
	f.Add("head,c-[1-3,07]")
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := expandHosts(list)
		if err == nil && slices.Contains(hosts, "") {
			t.Errorf("%q: %q", list, hosts)
		}
	})
}

// A node without a state that Flux reports has no state.
func TestStates(t *testing.T) {
	s, err := parseStatus("torpid|online|c-1|\ndrained|offline|c-2|a | b\nhousekeeping|online|c-3|\n\nScheduling is started\n\n\n")
	if err != nil || !maps.Equal(s.nodes, map[string]node{"c-1": {online: true, torpid: true}, "c-2": {drained: true, reason: "a | b"}, "c-3": {online: true, busy: true}}) {
		t.Errorf("%+v, %v", s.nodes, err)
	}
	if s.nodes["c-1"].isReady() || s.nodes["c-2"].isReady() || !s.nodes["c-3"].isReady() || s.nodes["c-2"].IsDrainedByUs() {
		t.Errorf("%+v", s.nodes)
	}
}
