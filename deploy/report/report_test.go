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
	changes string // the file changes.json
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
	for node, log := range s.logs {
		all = append(all, timed{last, event.Event{Kind: event.NodeLog, Node: node, Text: log}})
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
	for file, data := range files {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := runs.Open(dir, "last")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s story) page(t *testing.T) string { return write(t, s.record(t)) }

func write(t *testing.T, run *runs.Run) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, run); err != nil {
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
		logs: map[string]string{
			"web-1": "2026-11-21T01:59:17.200Z activating the configuration...\n2026-11-21T01:59:18.090Z setting up /etc...\n2026-11-21T01:59:21.412Z reloading the following units: dbus.service\n",
			"web-3": "2026-11-21T01:59:15.400Z activating the configuration...\n2026-11-21T01:59:19.000Z \x1b[1;31mnginx.service: Failed with result 'exit-code'.\x1b[0m\n2026-11-21T01:59:30.000Z switching back to /run/nixbench/before\n",
		},
	}
}

var styleRE = regexp.MustCompile(`(?s)<style>.*</style>`)

func TestGolden(t *testing.T) {
	for name, page := range map[string]string{
		"cluster": cluster().page(t),
		"nothing": story{command: "plan"}.page(t),
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
	page := write(t, run)
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
	page := cluster().page(t)
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
	page := s.page(t)
	if !strings.Contains(page, "line 4900\n") || !strings.Contains(page, "line 4999</pre>") || strings.Contains(page, "line 4000\n") {
		t.Error("the page does not contain only the last lines")
	}
	if !strings.Contains(page, "nixbench runs 20261121T015900Z-apply --log web-1") {
		t.Error("the page does not say where the whole log is")
	}
}

// The page contains the error of the run, the errors of nodes that add to it, and warnings.
func TestTexts(t *testing.T) {
	s := cluster()
	s.more = append(s.more,
		at(5, event.Event{Kind: event.Message, Level: "error", Node: "web-1", Text: "a lone error"}),
		at(6, event.Event{Kind: event.Message, Level: "error", Node: "db-2", Text: "unreachable: connection refused"})) // a part of the run's error
	page := s.page(t)
	for text, want := range map[string]int{
		"nginx[812]: bind() to 0.0.0.0:80 failed":  1,
		"dial tcp 192.168.222.32:22":               1,
		"the option `services.old&#39; is renamed": 1,
		"a lone error":                                1,
		`<span class="level">error</span>`:            1,
		"<title>demo: apply on 5 nodes: failed, exit": 1,
		"never shown":                                 0,
	} {
		if got := strings.Count(page, text); got != want {
			t.Errorf("%q occurs %d times, want %d", text, got, want)
		}
	}
}

// A damaged file names itself.
func TestDamagedChanges(t *testing.T) {
	s := cluster()
	s.changes = "{"
	if err := Write(io.Discard, s.record(t)); err == nil || !strings.Contains(err.Error(), "changes.json: unexpected end") {
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
	page := s.page(t)
	if len(page) > 1500_000 || strings.Count(page, `class="p-copy"><title>`) != maxDrawnNodes || !strings.Contains(page, "and 940 more nodes") {
		t.Errorf("%d bytes, %d bars", len(page), strings.Count(page, `class="p-copy"><title>`))
	}
}

func TestTicks(t *testing.T) {
	for _, took := range []time.Duration{300 * time.Millisecond, time.Second, 7 * time.Second, 31400 * time.Millisecond, time.Minute, time.Hour, 25 * time.Hour} {
		if got := makeTicks(explain.Seconds(took)); len(got) < 3 || len(got) > 8 {
			t.Errorf("%v: %v", took, got)
		}
	}
	if got := makeTicks(explain.Seconds(10000 * time.Hour)); len(got) != 100 {
		t.Errorf("%d ticks", len(got))
	}
	if got := makeTicks(0); got != nil {
		t.Error(got)
	}
	if got := makeTicks(explain.Seconds(31 * time.Second)); got[2].Text != "10.0s" || got[2].At != "32.26%" {
		t.Errorf("%+v", got)
	}
}
