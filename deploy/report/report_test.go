package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var began = time.Date(2026, 11, 21, 1, 59, 0, 0, time.UTC)

// story makes a record of lines such as `5.6 6.6 copy web-1 25 paths`.
type story struct {
	command string
	exit    int
	err     string
	nodes   []state.NodeResult
	lines   []string // FROM TO PHASE NODE TEXT; node - is the run as a whole, a text may begin with !, for failed
	more    []event.Event
	logs    map[string]string
	changes string    // the file changes.json
	earlier []float64 // times of earlier runs of the command in seconds, the last one first
}

// record writes it as nixbench does, and opens it.
func (s story) record(t *testing.T) *runs.Run {
	t.Helper()
	dir := state.Dir(filepath.Join(t.TempDir(), ".nixbench", "demo"))
	id := "20261121T015900Z-" + s.command
	folder := filepath.Join(string(dir), "runs", id)
	if err := os.MkdirAll(filepath.Join(folder, "nodes"), 0o700); err != nil {
		t.Fatal(err)
	}
	var last float64
	type timed struct {
		at float64
		e  event.Event
	}
	var all []timed
	for _, l := range s.lines {
		f := strings.SplitN(l, " ", 5)
		var from, to float64
		fmt.Sscan(f[0], &from)
		fmt.Sscan(f[1], &to)
		start := event.Event{Kind: event.PhaseStart, Phase: event.Phase(f[2])}
		end := event.Event{Kind: event.PhaseEnd, Phase: event.Phase(f[2])}
		if len(f) > 3 && f[3] != "-" {
			start.Kind, end.Kind = event.NodeStart, event.NodeEnd
			start.Node, end.Node = f[3], f[3]
		}
		if len(f) > 4 {
			end.Text, end.Failed = strings.CutPrefix(f[4], "!")
			if end.Phase == event.Copy {
				end.Done, end.Total = 3<<20+len(end.Node), 612<<20+len(end.Node)
			}
		}
		all = append(all, timed{from, start}, timed{to, end})
		last = max(last, to)
	}
	for _, e := range s.more {
		all = append(all, timed{e.Time.Sub(began).Seconds(), e})
	}
	var events bytes.Buffer
	for len(all) > 0 {
		first := 0
		for i := range all {
			if all[i].at < all[first].at {
				first = i
			}
		}
		e := all[first].e
		e.Time = began.Add(time.Duration(all[first].at * float64(time.Second)))
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		events.Write(append(line, '\n'))
		all = append(all[:first], all[first+1:]...)
	}
	ended := began.Add(time.Duration((last + 0.1) * float64(time.Second)))
	run := runs.Run{
		Version: 2, ID: id, Command: s.command, Args: []string{s.command, "--on", "@web,db", "--max-unavailable", "2"}, Hive: "/home/me/cluster/hive.nix",
		Revision: "3c08a17f2b1d0e94", Nixbench: "1.0.0", Holder: state.Holder{Command: s.command, PID: 4711, Host: "desk", User: "alice", Started: began},
		Started: began, Ended: &ended, Exit: &s.exit, Error: s.err, Nodes: s.nodes,
	}
	if run.Nodes == nil {
		run.Nodes = []state.NodeResult{}
	}
	data, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{filepath.Join(folder, "run.json"): data, filepath.Join(folder, "events.jsonl"): events.Bytes()}
	if s.changes != "" {
		files[filepath.Join(folder, "changes.json")] = []byte(s.changes)
	}
	for i, seconds := range s.earlier {
		past := run
		past.Started = began.Add(-time.Duration(i+1) * time.Hour)
		ended := past.Started.Add(time.Duration(seconds * float64(time.Second)))
		past.ID, past.Ended, past.Exit = past.Started.Format("20060102T150405Z")+"-"+s.command, &ended, new(int)
		data, err := json.Marshal(past)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(string(dir), "runs", past.ID, "run.json")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		files[file] = data
	}
	opened := func() *runs.Run {
		r, err := runs.Open(dir, "last")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for file, data := range files {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := opened()
	for node, log := range s.logs {
		if err := os.WriteFile(r.LogFile(node), []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (s story) load(t *testing.T) Subject {
	t.Helper()
	subject, err := Load(s.record(t))
	if err != nil {
		t.Fatal(err)
	}
	return subject
}

func write(t *testing.T, s Subject, before *Subject) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, s, before); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func at(seconds float64, e event.Event) event.Event {
	e.Time = began.Add(time.Duration(seconds * float64(time.Second)))
	return e
}

const system = "/nix/store/r3y267kssjzma7pm19ncmbamkgg3jcjk-nixos-system-web-25.05"

// cluster is a run with all that a page can show: one node is rolled back, one cannot be reached.
func cluster() story {
	web := func(n string, before int, o state.Outcome, err string) state.NodeResult {
		r := state.NodeResult{Node: n, Unit: "web", Path: system, Before: before, After: before + 1, Outcome: o, Error: err}
		if o != state.Switched {
			r.After = 0
		}
		return r
	}
	return story{
		command: "apply", exit: 8, err: "web-3: activate: the switch failed: nginx.service failed\ndb-2: unreachable: connection refused",
		nodes: []state.NodeResult{
			web("web-1", 41, state.Switched, ""), web("web-2", 0, state.Switched, ""),
			web("web-3", 41, state.RolledBack, "web-3: activate: the switch failed: nginx.service failed\nnginx[812]: bind() to 0.0.0.0:80 failed (98: Address already in use)"),
			{Node: "db-1", Unit: "db-1", Path: strings.Replace(system, "web", "db-1", 1), Outcome: state.Unchanged},
			{Node: "db-2", Unit: "db-2", Path: strings.Replace(system, "web", "db-2", 1), Outcome: state.Failed, Error: "db-2: unreachable: dial tcp 192.168.222.32:22: connection refused"},
		},
		lines: []string{
			"0 0.31 survey -", "0.4 3.9 evaluate - 3 units in 2 processes", "3.95 12.1 build - 3 closures", "12.2 31.4 deploy -",
			"0.45 0.7 connect web-1", "0.45 0.72 connect web-2", "0.45 0.8 connect web-3", "0.45 0.7 connect db-1", "0.45 5.4 connect db-2 !connection refused",
			"12.2 16.9 copy web-1 25 paths", "12.2 18.4 copy web-2 112 paths", "12.2 15.1 copy web-3 25 paths",
			"16.9 17.1 keys web-1 2 uploaded", "18.4 18.6 keys web-2 2 uploaded", "15.1 15.3 keys web-3 2 uploaded",
			"17.1 23.0 activate web-1 generation 41 → 42", "18.6 25.2 activate web-2 generation 1, the first", "15.3 31.3 activate web-3 !nginx.service failed",
			"23.0 23.6 confirm web-1", "25.2 25.9 confirm web-2",
		},
		more: []event.Event{
			at(1.2, event.Event{Kind: event.Message, Phase: event.Evaluate, Level: "warning", Text: "evaluation warning: the option `services.old' is renamed to `services.new'"}),
			at(1.3, event.Event{Kind: event.Message, Phase: event.Evaluate, Level: "trace", Text: "never shown"}),
			at(23.7, event.Event{Kind: event.NodeResult, Phase: event.Deploy, Node: "web-1", Text: "generation 41 → 42; reboot for the new kernel"}),
			at(31.35, event.Event{Kind: event.NodeResult, Phase: event.Deploy, Node: "web-3", Text: "rolled back: nginx.service failed", Failed: true}),
		},
		changes: `[{"nodes":["web-2","web-1","web-3"],"diff":{"bytes":2252800,"packages":[
			{"name":"curl","from":["8.9"],"to":["8.10"],"bytes":1945600},{"name":"hello","from":[],"to":["2.12"],"bytes":307200},
			{"name":"a-package-with-a-name-that-is-far-too-long-for-a-phone-and-has-no-place-to-break","from":["1"],"to":[],"bytes":-400}],
			"units":{"added":["hello.service"],"changed":["nginx.service"],"removed":[]},"etc":{"added":[],"changed":["hosts"],"removed":["ssl/certs/a-file-with-a-name-that-is-far-too-long-for-a-phone.crt"]}}}]`,
		earlier: []float64{29, 33.5, 12, 61, 28, 27, 27.5, 29, 30, 31, 32},
		logs: map[string]string{
			"web-1": "2026-11-21T01:59:17.200Z activating the configuration...\n2026-11-21T01:59:18.090Z setting up /etc...\n2026-11-21T01:59:21.412Z reloading the following units: dbus.service\n",
			"web-3": "2026-11-21T01:59:15.400Z activating the configuration...\n2026-11-21T01:59:19.000Z \x1b[1;31mnginx.service: Failed with result 'exit-code'.\x1b[0m\n2026-11-21T01:59:30.000Z switching back to /run/nixbench/before\n",
		},
	}
}

// faster is the same run without failures, an hour earlier.
func faster() story {
	return story{
		command: "apply",
		nodes: []state.NodeResult{
			{Node: "web-1", Unit: "web", Path: system, Before: 40, After: 41, Outcome: state.Switched},
			{Node: "web-3", Unit: "web", Path: system, Before: 40, After: 41, Outcome: state.Switched},
			{Node: "web-9", Unit: "web", Path: system, Outcome: state.Unchanged},
		},
		lines: []string{
			"0 0.3 survey -", "0.4 3.8 evaluate -", "3.8 7.2 build -", "7.2 15 deploy -",
			"0.4 0.7 connect web-1", "0.4 0.7 connect web-3", "0.4 0.9 connect web-9",
			"7.2 9 copy web-1 12 paths", "7.2 9.2 copy web-3 12 paths", "9 14 activate web-1", "9.2 14.6 activate web-3", "14.6 15 confirm web-3",
		},
	}
}

var styleRE = regexp.MustCompile(`(?s)<style>.*</style>`)

func TestGolden(t *testing.T) {
	before := faster().load(t)
	for name, page := range map[string]string{
		"cluster": write(t, cluster().load(t), nil),
		"compare": write(t, cluster().load(t), &before),
		"nothing": write(t, story{command: "plan"}.load(t), nil),
	} {
		got := styleRE.ReplaceAllString(page, "<style></style>")
		file := filepath.Join("testdata", name+".html")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}

// hostile are texts that a browser could execute.
const hostile = `"><script>alert(1)</script><img src=//evil.example/x onerror=alert(2)>'</style></svg>&<b onclick="x">` + "\x1b]0;title\a`{{.}}"

func hostileStory() story {
	s := cluster()
	s.err, s.command = hostile, "apply"
	s.nodes = append(s.nodes, state.NodeResult{Node: hostile, Unit: hostile, Path: hostile, Outcome: state.Outcome("odd\"><script>"), Error: hostile})
	for _, e := range []event.Event{
		{Kind: event.NodeStart, Node: hostile, Phase: event.Phase(`x" onload="alert(3)`)},
		{Kind: event.NodeEnd, Node: hostile, Phase: event.Phase(`x" onload="alert(3)`), Text: hostile},
		{Kind: event.Message, Phase: event.Build, Level: "error", Text: hostile},
		{Kind: event.NodeResult, Node: hostile, Text: hostile, Failed: true},
	} {
		s.more = append(s.more, at(20+float64(len(s.more)), e))
	}
	name, _ := json.Marshal(hostile)
	s.changes = strings.NewReplacer(`"curl"`, string(name), `"web-2"`, string(name), `"hosts"`, string(name)).Replace(s.changes)
	s.logs[hostile] = hostile + "\n\xff\x00\x1b[31mred\n</pre><script src=https://evil.example/></script>\n"
	s.logs["web-1"] = s.logs[hostile]
	return s
}

func TestHostileTexts(t *testing.T) {
	run := hostileStory().record(t)
	run.Args = []string{"apply", hostile}
	run.Hive, run.Revision, run.Holder.User = hostile, hostile, hostile
	s, err := Load(run)
	if err != nil {
		t.Fatal(err)
	}
	page := write(t, s, &s)
	checkMarkup(t, page)
	if strings.ContainsAny(page, "\x1b\x00\a") {
		t.Error("control characters are on the page")
	}
	for _, want := range []string{"&lt;script&gt;alert(1)", "evil.example"} { // shown, as text
		if !strings.Contains(page, want) {
			t.Errorf("%q is not there", want)
		}
	}
}

// checkMarkup reads a page as a browser does, near enough: elements and attributes that we use,
// and no other.
func checkMarkup(t *testing.T, page string) {
	t.Helper()
	elements := map[string]bool{}
	for e := range strings.FieldsSeq("html head meta link title style body header main section details summary div span p b code pre h1 h2 h3 dl dt dd ul ol li " +
		"table thead tbody tr th td svg rect line text") {
		elements[e] = true
	}
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	n := 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		n++
		if !elements[e.Name.Local] {
			t.Errorf("there is an element %s", e.Name.Local)
		}
		for _, a := range e.Attr {
			name := strings.ToLower(a.Name.Local)
			if strings.HasPrefix(name, "on") || name == "src" || name == "style" || name == "href" && a.Value != "data:," {
				t.Errorf("%s has %s=%q", e.Name.Local, name, a.Value)
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d elements", n)
	}
}

func TestPageLoadsNoFiles(t *testing.T) {
	before := faster().load(t)
	page := write(t, cluster().load(t), &before)
	checkMarkup(t, page)
	for _, no := range []string{"<script", "http://", "https://", "@import", "url(", "javascript:"} {
		if strings.Contains(strings.ToLower(page), no) {
			t.Errorf("the page has %s", no)
		}
	}
	if strings.Contains(page, "ZgotmplZ") {
		t.Error("the template has put a text where it must not be")
	}
}

func TestLongLogs(t *testing.T) {
	s := cluster()
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	s.logs["web-1"] = b.String()
	subject := s.load(t)
	log := subject.Logs["web-1"]
	if lines := strings.Split(log.Text, "\n"); !log.Cut || len(lines) != logLines || lines[logLines-1] != "line 4999" || lines[0] != "line 4920" {
		t.Errorf("%d lines, cut %t", len(lines), log.Cut)
	}
	if page := write(t, subject, nil); !strings.Contains(page, log.File) || strings.Contains(page, "line 4919") {
		t.Error("it does not say where all of the log is, or tells too much")
	}
}

// A failure is on the page once: neither the warnings nor the section of its node repeat it.
func TestFailureShownOnce(t *testing.T) {
	page := write(t, cluster().load(t), nil)
	for text, want := range map[string]int{
		"nginx[812]: bind() to 0.0.0.0:80 failed":                1,
		"dial tcp 192.168.222.32:22":                             1,
		"web-3: activate: the switch failed":                     1,
		"nginx.service failed":                                   2, // as the title of a bar in the waterfall
		"connection refused":                                     2, // likewise
		"the option `services.old&#39; is renamed":               1,
		`<span class="level">error</span>`:                       0,
		`<h2>The last 10 runs of this command</h2>`:              1,
		`<details class="short">`:                                1,
		"<title>demo: apply on 5 nodes, 2026-11-21 01:59:00 UTC": 1,
	} {
		if got := strings.Count(page, text); got != want {
			t.Errorf("%q occurs %d times, want %d", text, got, want)
		}
	}
	// An error that is not part of the run's error is still listed.
	s := cluster()
	s.more = append(s.more, at(5, event.Event{Kind: event.Message, Level: "error", Node: "web-1", Text: "a lone error"}))
	if page := write(t, s.load(t), nil); strings.Count(page, "a lone error") != 1 {
		t.Error("an error is missing")
	}
}

func TestMergeProblems(t *testing.T) {
	node := func(o state.Outcome, err string) state.NodeResult {
		name, _, _ := strings.Cut(err, ":")
		return state.NodeResult{Node: name, Outcome: o, Error: err}
	}
	for _, test := range []struct {
		err   string
		nodes []state.NodeResult
		want  string
	}{
		{"", nil, ""},
		{"a: x\nb: y", []state.NodeResult{node(state.Failed, "a: x\nmore"), node(state.Failed, "b: y")}, "a: x\nmore\nb: y"},
		{"a: short\nand 1 more", []state.NodeResult{node(state.Failed, "a: long")}, "a: long\nand 1 more"},
		{"1 node failed", []state.NodeResult{node(state.RolledBack, "a: x"), node(state.Skipped, "b: skipped")}, "1 node failed\na: x"},
		{"", []state.NodeResult{node(state.Failed, "a: x")}, "a: x"},
	} {
		if got := mergeProblems(&runs.Run{Error: test.err, Nodes: test.nodes}); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// A damaged file names itself.
func TestDamagedChanges(t *testing.T) {
	s := cluster()
	s.changes = "{"
	if _, err := Load(s.record(t)); err == nil || !strings.Contains(err.Error(), "changes.json is damaged") {
		t.Error(err)
	}
}

// The page of a thousand nodes is small enough for a browser.
func TestThousandNodes(t *testing.T) {
	s := story{command: "apply"}
	for i := range 1000 {
		n := fmt.Sprintf("node-%d", i)
		s.nodes = append(s.nodes, state.NodeResult{Node: n, Unit: "worker", Path: system, Outcome: state.Switched, After: 1})
		s.lines = append(s.lines, fmt.Sprintf("1 %d copy %s 4 paths", 2+i%7, n))
	}
	page := write(t, s.load(t), nil)
	if len(page) > 1500_000 || strings.Count(page, `class="p-copy"><title>`) != maxDrawnNodes || !strings.Contains(page, "and 940 more nodes") {
		t.Errorf("%d bytes, %d bars", len(page), strings.Count(page, `class="p-copy"><title>`))
	}
	if !strings.Contains(page, "4000 paths, 2.9 GiB to 1000 nodes") {
		t.Error("what was copied is not summed up")
	}
}

func secondsOf(f float64) explain.Seconds { return explain.Seconds(f * float64(time.Second)) }

func TestTicks(t *testing.T) {
	for _, seconds := range []float64{0.004, 0.3, 1, 7, 31.4, 59, 61, 600, 3599, 90000, 4e6} {
		got := makeTicks(secondsOf(seconds))
		if len(got) < 3 || len(got) > 100 {
			t.Errorf("%g s: %v", seconds, got)
		}
	}
	if got := makeTicks(0); got != nil {
		t.Error(got)
	}
	if last := makeTicks(secondsOf(31.4))[3]; last.Text != "30 s" && last.Text != "15 s" {
		t.Errorf("%+v", last)
	}
}
