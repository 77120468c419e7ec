package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

func folder(t *testing.T) state.Dir {
	return state.Dir(filepath.Join(t.TempDir(), ".nixbench", "demo"))
}

// mustLock takes the lock. It waits while another goroutine reads who holds the lock.
func mustLock(t *testing.T, d state.Dir) *state.Lock {
	t.Helper()
	for begun := time.Now(); ; {
		l, err := d.Lock(t.Context(), state.Self("apply"))
		if locked := (*state.LockedError)(nil); errors.As(err, &locked) && time.Since(begun) < time.Minute {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Unlock() })
		return l
	}
}

func record(t *testing.T, l *state.Lock) *Recorder {
	t.Helper()
	r, err := Record(l, Run{Args: []string{"apply", "--on", "web-*"}, Hive: "/hives/demo/hive.nix", Revision: "4ff984a", Nixbench: "0.2"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.End(1, nil) })
	return r
}

// A node that prints without an end does not fill the disk, its log controls no terminal, and its result is recorded.
func TestLogOfANodeIsLimited(t *testing.T) {
	d := folder(t)
	r := record(t, mustLock(t, d))
	r.most = 1 << 20
	line := "\x1b[2J" + strings.Repeat("x", 1<<14)
	for range 80 {
		r.RecordEvent(event.Event{Kind: event.NodeLog, Node: "web-1", Text: line})
		if err := r.flush(); err != nil {
			t.Fatal(err)
		}
	}
	r.RecordEvent(event.Event{Kind: event.NodeResult, Node: "web-1", Text: "the end"})
	r.RecordEvent(event.Event{Kind: event.NodeLog, Node: "web-2", Text: "other"})
	if err := r.End(0, nil); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(r.folder, "events.jsonl"))
	if err != nil || len(data) > r.most+1<<16 || len(data) < r.most/2 || !bytes.Contains(data, []byte("the end")) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	events, _, err := ReadEvents(bytes.NewReader(data))
	first, second := Log(events, "web-1"), Log(events, "web-2")
	if err != nil || len(first) < r.most/2 || strings.Contains(first, "\x1b") || !strings.HasSuffix(second, "Z other\n") {
		t.Errorf("%d bytes, %q, %v", len(first), second, err)
	}
}

func TestARunIsRecorded(t *testing.T) {
	d := folder(t)
	l := mustLock(t, d)
	r := record(t, l)
	if !regexp.MustCompile(`^\d{8}T\d{6}Z-apply$`).MatchString(r.ID()) {
		t.Error(r.ID())
	}
	if run, err := Open(d, "last"); err != nil || run.Status() != StatusRunning {
		t.Error(run, err)
	}
	var key nixeval.Key
	if err := json.Unmarshal([]byte(`{"name":"k","text":"swordfish"}`), &key); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteFile("plan.json", map[string]any{"keys": []nixeval.Key{key}}); err != nil {
		t.Fatal(err)
	}
	sink := event.Sink(r.RecordEvent)
	sink.Send(event.Event{Kind: event.NodeStart, Node: "web-1", Phase: event.Activate})
	sink.Send(event.Event{Kind: event.NodeLog, Node: "web-1", Phase: event.Activate, Text: "starting\nthe units"})
	sink.Send(event.Event{Kind: event.NodeLog, Node: "../../evil", Text: "boo"})
	sink.Send(event.Event{Kind: event.NodeEnd, Node: "web-1", Phase: event.Activate})
	r.RecordResult(state.NodeResult{Node: "web-1", Unit: "web", Outcome: state.Skipped})
	r.RecordResult(state.NodeResult{Node: "web-1", Unit: "web", Path: "/nix/store/x", Before: 6, After: 7, Outcome: state.Switched})
	r.RecordResult(state.NodeResult{Node: "web-2", Unit: "web", Outcome: state.Failed, Error: "no route"})
	for range 2 {
		if err := r.End(6, errors.New("1 node is unreachable")); err != nil {
			t.Fatal(err)
		}
	}
	sink.Send(event.Event{Kind: event.NodeLog, Node: "late"}) // has no effect

	run, err := Open(d, r.ID()[:10])
	if err != nil {
		t.Fatal(err)
	}
	if run.Status() != StatusFailed || *run.Exit != 6 || run.Error != "1 node is unreachable" || run.Revision != "4ff984a" ||
		run.Holder.PID != os.Getpid() || !slices.Equal(run.Args, []string{"apply", "--on", "web-*"}) {
		t.Errorf("%+v", run)
	}
	if diff := cmp.Diff([]state.NodeResult{{Node: "web-1", Unit: "web", Path: "/nix/store/x", Before: 6, After: 7, Outcome: state.Switched},
		{Node: "web-2", Unit: "web", Outcome: state.Failed, Error: "no route"}}, run.Nodes); diff != "" {
		t.Error(diff)
	}
	events, damaged, err := run.Events()
	if err != nil || damaged != 0 || len(events) != 4 || events[1].Text != "starting\nthe units" || events[1].Time.IsZero() {
		t.Error(events, damaged, err)
	}
	log, evil := Log(events, "web-1"), Log(events, "../../evil")
	if !regexp.MustCompile(`^\S+T\S+Z starting\n\S+Z the units\n$`).MatchString(log) || !strings.HasSuffix(evil, " boo\n") || Log(events, "web-2") != "" {
		t.Errorf("%q, %q", log, evil)
	}
	plan, err := os.ReadFile(filepath.Join(run.Folder(), "plan.json"))
	if err != nil || !bytes.Contains(plan, []byte("(secret)")) || bytes.Contains(plan, []byte("swordfish")) {
		t.Errorf("%s %v", plan, err)
	}
	list, err := List(d)
	if err != nil || len(list) != 1 || list[0].Status != StatusFailed || list[0].Nodes[state.Switched] != 1 || list[0].Nodes[state.Failed] != 1 {
		t.Error(list, err)
	}
	private(t, d)
}

// private checks that only the owner can read the files in the folder.
func private(t *testing.T, d state.Dir) {
	t.Helper()
	if err := filepath.WalkDir(string(d), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestSafeArgs(t *testing.T) {
	for in, want := range map[string]string{
		"apply --on web-* --set roles.web.count=5 -f x/hive.nix":     "apply --on web-* --set roles.web.count=5 -f x/hive.nix",
		"exec --on a -- mysql -pswordfish":                           "exec --on a -- (2 arguments)",
		"apply --sudo-password=swordfish":                            "apply --sudo-password=…",
		"apply --nix-option access-tokens host=swordfish --yes":      "apply --nix-option access-tokens … --yes",
		"apply --nix-option=access-tokens=host=swordfish":            "apply --nix-option=access-tokens=…",
		"apply --token swordfish --yes":                              "apply --token … --yes",
		"apply --ask-password --yes":                                 "apply --ask-password --yes",
		"apply --set roles.web.joinToken=swordfish":                  "apply --set roles.web.joinToken=…",
		"apply --flake git+https://swordfish@host/x":                 "apply --flake git+https://…@host/x",
		"apply --flake git+ssh://git:swordfish@host/x":               "apply --flake git+ssh://git:…@host/x",
		"apply --flake git+ssh://git@host/x?ref=main":                "apply --flake git+ssh://git@host/x?ref=main",
		"apply --flake=git+https://h/x?ref=a&access_token=swordfish": "apply --flake=git+https://h/x?ref=a&access_token=…",
	} {
		if got := strings.Join(SafeArgs(strings.Fields(in)), " "); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}

func TestIdentifiers(t *testing.T) {
	d := folder(t)
	at := time.Date(2026, 11, 21, 1, 59, 0, 0, time.UTC)
	for _, c := range [][2]string{
		{"apply", "20261121T015900Z-apply"}, {"apply", "20261121T015900Z-apply-2"}, {"apply", "20261121T015900Z-apply-3"},
		{"Apply ../dry activate", "20261121T015900Z-apply-dry-activate"}, {"", "20261121T015900Z"},
	} {
		id := chooseID(d, c[0], at)
		if id != c[1] {
			t.Errorf("%q: %s, want %s", c[0], id, c[1])
		}
		if err := os.MkdirAll(runDir(d, id), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// A listing while runs begin and end never shows a running one as killed or damaged.
func TestLiveRunsAreNotKilled(t *testing.T) {
	d := folder(t)
	if err := d.Create(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var reading sync.WaitGroup
	for range 3 {
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				list, err := List(d)
				if err != nil {
					t.Error(err)
				}
				for _, s := range list {
					if s.Status == StatusKilled || s.Status == StatusDamaged {
						t.Errorf("%+v", s)
					}
				}
			}
		})
	}
	for range 30 {
		l := mustLock(t, d)
		if err := errors.Join(record(t, l).End(0, nil), l.Unlock()); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	reading.Wait()
}

// Records that a killed run may leave: without run.json, with half of it, with an incomplete event.
func TestBrokenRecords(t *testing.T) {
	d := folder(t)
	l := mustLock(t, d)
	r := record(t, l)
	event.Sink(r.RecordEvent).Send(event.Event{Kind: event.PhaseStart, Phase: event.Build})
	event.Sink(r.RecordEvent).Send(event.Event{Kind: event.PhaseEnd, Phase: event.Build})
	if err := r.End(0, nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.folder, "events.jsonl")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(data) {
		if err := os.WriteFile(file, data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		run, err := Open(d, r.ID())
		if err != nil {
			t.Fatal(err)
		}
		whole := bytes.Count(data[:cut], []byte("\n"))
		events, damaged, err := run.Events()
		if err != nil || len(events)+damaged < whole || len(events) < whole || damaged > 1 {
			t.Fatalf("cut at %d: %d events, %d damaged, %v", cut, len(events), damaged, err)
		}
	}
	for name, text := range map[string]string{"20300101T000000Z-apply": "", "20300102T000000Z-apply": `{"version":1,`, "20300103T000000Z-apply": `{"version":9}`,
		"20300104T000000Z-apply": `{"version":1,"id":"other"}`} {
		if err := os.MkdirAll(runDir(d, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(runDir(d, name), "run.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(runsDir(d), "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := List(d)
	if err != nil || len(list) != 5 {
		t.Fatal(list, err)
	}
	for i, s := range list {
		if (s.Status == StatusDamaged) != (i < 4) || i < 4 && s.Error == "" {
			t.Errorf("%+v", s)
		}
	}
	if _, err := Open(d, "20300102"); err == nil || !strings.Contains(err.Error(), "run.json cannot be used") {
		t.Error(err)
	}
	if _, err := Open(d, "2030"); failure.KindOf(err) != failure.Usage || strings.Count(err.Error(), ", ") != 3 || !strings.Contains(err.Error(), "may be any of the runs 20300104") {
		t.Error(err)
	}
	for _, ref := range []string{"", "1999", "../runs"} {
		if _, err := Open(d, ref); failure.KindOf(err) != failure.Usage || !strings.Contains(fmt.Sprint(err), "there is no run") {
			t.Error(err)
		}
	}
	if _, err := Open(folder(t), "last"); failure.KindOf(err) != failure.Usage || err.Error() != "there are no runs yet" {
		t.Error(err)
	}
}

func TestPrune(t *testing.T) {
	d := folder(t)
	l := mustLock(t, d)
	put := func(id string) {
		t.Helper()
		if err := os.MkdirAll(runDir(d, id), 0o700); err != nil {
			t.Fatal(err)
		}
		data, _ := json.Marshal(Run{Version: version, ID: id})
		if err := os.WriteFile(filepath.Join(runDir(d, id), "run.json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		put(fmt.Sprintf("2001112%dT000000Z-apply", i))
	}
	put("mine")
	put(".20011101T000000Z-apply")
	s, err := l.Store()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(func(s *state.State) error {
		s.Confirm("a", state.Deployment{Run: "20011122T000000Z-apply"})
		s.RecordBefore("20011123T000000Z-apply", "a", state.Deployment{})
		s.Begin(state.Intent{Run: "20011121T000000Z-apply", Node: "a"})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	names := func() (names []string) {
		entries, err := os.ReadDir(runsDir(d))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if err := Prune(l, Keep); err != nil || len(names()) != 11 {
		t.Error(names(), err)
	}
	if err := Prune(l, 4); err != nil || len(names()) != 8 || slices.Contains(names(), "20011124T000000Z-apply") {
		t.Error(names(), err)
	}
	r := record(t, l)
	if err := Prune(l, 0); err != nil {
		t.Error(err)
	}
	want := []string{"20011121T000000Z-apply", "20011122T000000Z-apply", "20011123T000000Z-apply", r.ID(), "mine"}
	if !slices.Equal(names(), want) {
		t.Error(names())
	}
}

func TestDiscard(t *testing.T) {
	d := folder(t)
	r := record(t, mustLock(t, d))
	event.Sink(r.RecordEvent).Send(event.Event{Kind: event.NodeLog, Node: "web-1", Text: "a line"})
	if err := r.Discard(); err != nil {
		t.Fatal(err)
	}
	if runs, err := List(d); len(runs) != 0 || err != nil {
		t.Error(runs, err)
	}
	if _, err := os.Lstat(r.folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of the run: %v", err)
	}
}

// If the disk was full, the error of End says that events are lost. The record contains the later events and the end of the run.
func TestRecordOnAFullDisk(t *testing.T) {
	d := folder(t)
	r := record(t, mustLock(t, d))
	events := filepath.Join(r.folder, "events.jsonl")
	if err := os.Symlink("/dev/full", events); err != nil {
		t.Fatal(err)
	}
	event.Sink(r.RecordEvent).Send(event.Event{Kind: event.Message, Text: "one"})
	if err := r.End(0, nil); err == nil || !strings.Contains(err.Error(), "events are lost") || !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
	if run, err := Open(d, "last"); err != nil || run.Status() != StatusDone {
		t.Error(run, err)
	}
}

// The events of a thousand nodes at the same time are all recorded, each on its own line.
func TestAThousandNodesSendEvents(t *testing.T) {
	d := folder(t)
	r := record(t, mustLock(t, d))
	sink := event.Sink(r.RecordEvent)
	begun := time.Now()
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			node := fmt.Sprintf("node-%d", i)
			sink.Send(event.Event{Kind: event.NodeStart, Node: node, Phase: event.Activate})
			for j := range 20 {
				sink.Send(event.Event{Kind: event.NodeLog, Node: node, Phase: event.Activate, Text: fmt.Sprintf("line %d", j)})
			}
			r.RecordResult(state.NodeResult{Node: node, Unit: node, Outcome: state.Switched})
			sink.Send(event.Event{Kind: event.NodeEnd, Node: node, Phase: event.Activate})
		})
	}
	wg.Wait()
	sent := time.Since(begun)
	if err := r.End(0, nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("22,000 events sent in %s, on disk after %s", sent, time.Since(begun))
	run, err := Open(d, "last")
	if err != nil || len(run.Nodes) != 1000 {
		t.Fatal(err)
	}
	events, damaged, err := run.Events()
	if len(events) != 22000 || damaged != 0 || err != nil {
		t.Error(len(events), damaged, err)
	}
	if log := Log(events, "node-500"); strings.Count(log, "\n") != 20 || !strings.HasSuffix(log, " line 19\n") {
		t.Error(log)
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add([]byte("{\"time\":\"2026-11-21T02:00:00Z\",\"event\":\"node-end\",\"node\":\"a\"}\n{\"ev"))
	f.Add([]byte("\n\x00\x00\n[]\nnull\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		events, damaged, err := ReadEvents(bytes.NewReader(data))
		if err != nil || len(events)+damaged > bytes.Count(data, []byte("\n"))+1 {
			t.Fatal(len(events), damaged, err)
		}
		for _, e := range events {
			if e.Kind == "" {
				t.Fatal("an event of no kind")
			}
		}
	})
}

// The time in which a run waits for answers is recorded, and does not count as time of the run.
func TestAnswersOfARun(t *testing.T) {
	d := folder(t)
	r, err := Record(mustLock(t, d), Run{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	r.RecordEvent(event.Event{Kind: event.Answer, Since: now.Add(-2 * time.Hour), Time: now.Add(-time.Hour)})
	r.RecordEvent(event.Event{Kind: event.Answer, Since: now.Add(-30 * time.Minute), Time: now})
	if err := r.End(0, nil); err != nil {
		t.Fatal(err)
	}
	runs, err := List(d)
	if err != nil || len(runs) != 1 || runs[0].Answers != 5400 {
		t.Fatalf("%+v, %v", runs, err)
	}
	ended := runs[0].Started.Add(2 * time.Hour)
	for _, tt := range []struct {
		run   Summary
		took  time.Duration
		ended bool
	}{
		{Summary{Started: runs[0].Started, Ended: &ended, Answers: 5400}, 30 * time.Minute, true},
		{Summary{Started: runs[0].Started, Ended: &ended}, 2 * time.Hour, true},
		{Summary{Started: runs[0].Started, Answers: 5400}, 0, false},
	} {
		if took, ended := tt.run.Took(); took != tt.took || ended != tt.ended {
			t.Errorf("%+v: got %v, %v", tt.run, took, ended)
		}
	}
}
