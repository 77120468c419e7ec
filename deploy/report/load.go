package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/explain"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

// The maximum size and number of lines of a node's log on a page. For a longer log, the page contains the
// end of the log and the path of the log file.
const (
	logBytes = 16 << 10
	logLines = 80
)

// Subject is a run with its recorded data, for the page. No text in it contains control characters.
type Subject struct {
	Run    *runs.Run
	Time   explain.Report
	Events []event.Event
	Logs   map[string]LogTail // node → end of its log; nodes without a log are missing

	Cluster string
	Changes []packages.Group // the changes that the run made in the systems of its nodes
	Recent  []runs.Summary   // summaries of this run and of earlier runs of the same command, the newest first
}

// LogTail contains the last lines of the log of a node.
type LogTail struct {
	Text string
	Cut  bool   // the log file contains more lines before Text
	File string // path of the log file
}

// Load reads the recorded data of a run.
func Load(run *runs.Run) (Subject, error) {
	s := Subject{Run: run, Logs: map[string]LogTail{}, Cluster: stripControls(run.Cluster())}
	var err error
	if s.Time, err = explain.ExplainRun(run); err != nil {
		return Subject{}, err
	}
	if s.Events, _, err = run.Events(); err != nil {
		return Subject{}, err
	}
	changes, err := run.Changes()
	if err == nil {
		s.Changes, err = readChanges(changes)
	}
	if err != nil {
		return Subject{}, fmt.Errorf("run %s: %w", run.ID, err)
	}
	if s.Recent, err = run.Recent(maxTrend); err != nil {
		return Subject{}, err
	}
	for _, name := range s.nodeNames() {
		log, err := readTail(run.LogFile(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the node printed nothing
		}
		if err != nil {
			return Subject{}, fmt.Errorf("run %s: log of %s: %w", run.ID, name, err)
		}
		s.Logs[stripControls(name)] = log
	}
	return s.removeControls(), nil
}

// removeControls returns s without control characters in texts that nixbench received from hives,
// machines and the environment.
func (s Subject) removeControls() Subject {
	run := *s.Run
	run.Args = slices.Clone(run.Args)
	for i := range run.Args {
		run.Args[i] = stripControls(run.Args[i])
	}
	for _, text := range []*string{&run.Hive, &run.Scheduler, &run.Revision, &run.Error, &run.Holder.User, &run.Holder.Host} {
		*text = stripControls(*text)
	}
	run.Nodes = slices.Clone(run.Nodes)
	for i := range run.Nodes {
		n := &run.Nodes[i]
		n.Node, n.Unit, n.Path, n.Error = stripControls(n.Node), stripControls(n.Unit), stripControls(n.Path), stripControls(n.Error)
	}
	s.Run = &run
	spans := func(spans []explain.Span) {
		for i := range spans {
			spans[i].Node, spans[i].Text = stripControls(spans[i].Node), stripControls(spans[i].Text)
		}
	}
	spans(s.Time.Phases)
	spans(s.Time.Critical)
	for i := range s.Time.Nodes {
		s.Time.Nodes[i].Node = stripControls(s.Time.Nodes[i].Node)
		spans(s.Time.Nodes[i].Spans)
	}
	for i := range s.Events {
		e := &s.Events[i]
		e.Node, e.Path, e.Text = stripControls(e.Node), stripControls(e.Path), stripControls(e.Text)
	}
	return s
}

// nodeNames returns the names of the nodes with a result, and then the names of the nodes without a result for which
// s.Time contains phases.
func (s Subject) nodeNames() []string {
	var names []string
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, n := range s.Run.Nodes {
		add(n.Node)
	}
	for _, n := range s.Time.Nodes {
		add(n.Node)
	}
	return names
}

// readTail reads the last lines of a log file: at most logLines lines and logBytes bytes.
func readTail(file string) (LogTail, error) {
	f, info, err := durable.Open(file)
	if err != nil {
		return LogTail{}, err
	}
	defer f.Close()
	l := LogTail{File: stripControls(file)}
	if from := info.Size() - logBytes; from > 0 {
		l.Cut = true
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			return LogTail{}, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, logBytes))
	if err != nil {
		return LogTail{}, err
	}
	if l.Cut { // remove the first line, which may be incomplete
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(lines) > logLines {
		lines, l.Cut = lines[len(lines)-logLines:], true
	}
	l.Text = stripControls(strings.Join(lines, "\n"))
	return l, nil
}

// stripControls returns s without escape sequences and other control characters, except newlines and tabs.
func stripControls(s string) string {
	s = strings.ToValidUTF8(s, "�")
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == 0x1b {
			if i+1 < len(s) && s[i+1] == '[' {
				for i += 2; i < len(s) && (s[i] < '@' || s[i] > '~'); i++ {
				}
			}
			continue
		}
		if c == '\n' || c == '\t' || c >= ' ' && c != 0x7f {
			b.WriteByte(c)
		}
	}
	return b.String()
}
