package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
)

const supportLong = `Write a .tar.gz file for a report of a problem: the versions, the findings of
doctor, the status of the nodes, the records of the last five runs, the names
and sizes in the hive, and the journals of failed units. It changes nothing.

No secret that nixbench knows is in the file. The output of a keyCommand, and
secrets of other programs in the journals, are not known to nixbench: read the
file before you give it to others.`

func (a *app) supportCommand() *cobra.Command {
	var on []string
	var out string
	cmd := &cobra.Command{
		Use:   "support",
		Short: "Collect versions, status and records in a file",
		Long:  supportLong,
		Example: `  nixbench support
  nixbench support --on worker-3 -o report.tar.gz`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return a.support(on, out) })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&on, "on", nil, onHelp)
	f.StringVarP(&out, "output", "o", "", "write `FILE` (default: nixbench-support-TIME.tar.gz here)")
	return cmd
}

const (
	supportRuns     = 5
	supportLogSize  = 1 << 20 // bytes of the end of each log
	supportParallel = 10      // nodes that are asked at once
)

func (a *app) support(on []string, out string) error {
	if out != "" {
		if err := checkOutput("--output", out, func(string) bool { return false }); err != nil {
			return err
		}
	}
	e, hive, nodes, err := a.loadNodes(on)
	if err != nil {
		return err
	}
	secrets, err := collectSecrets(a.dir, hive)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	if out == "" {
		out = "nixbench-support-" + now.Format("20060102T150405Z") + ".tar.gz"
	}
	b := &supportBundle{secrets: secrets, now: now, prefix: "nixbench-support/", withoutLogs: describeUnknownKeys(hive)}
	if b.withoutLogs != "" {
		a.sendEvent(event.Event{Kind: event.Message, Level: "warning", Time: now, Text: b.withoutLogs})
		b.addText("left-out.txt", b.withoutLogs+"\n")
	}
	nix, err := inspect.NixVersion(a.ctx)
	b.addText("versions.txt", fmt.Sprintf("nixbench %+v\n%s\n%s/%s\n", readBuildVersion(), orError(nix, err), runtime.GOOS, runtime.GOARCH))
	b.addJSON("hive.json", describeHive(hive))
	recorded, err := a.dir.Load()
	if err == nil {
		var text bytes.Buffer
		writeFindings(&text, append(inspect.Computer(a.ctx), a.newMachines(e, hive, a.sendEvent).Examine(a.ctx, recorded)...))
		b.addText("doctor.txt", text.String())
		a.addStatus(b, e, hive, nodes)
	} else {
		b.addText("state.txt", err.Error())
	}
	if b.withoutLogs == "" {
		b.addRuns(a.dir)
	}
	if err := a.ctx.Err(); err != nil {
		return context.Cause(a.ctx)
	}
	data, err := b.archive()
	if err != nil {
		return err
	}
	if err := durable.Write(out, data); err != nil { // a private file
		return err
	}
	a.view.Result(map[string]string{"file": out}, func(w io.Writer) { fmt.Fprintln(w, out) })
	return nil
}

// addStatus adds the status of the nodes and the journals of their failed units.
func (a *app) addStatus(b *supportBundle, e *nixeval.Evaluator, hive *nixeval.Hive, nodes []nixeval.Node) {
	remote, err := a.selectRemoteNodes(hive, nodes)
	if err != nil {
		b.addText("status.txt", err.Error())
		return
	}
	conns := a.newFleet(hive, fleetFlags{parallel: supportParallel}, nil)
	defer conns.Close()
	s, err := a.observeStatus(e, hive, conns, remote, statusFlags{fleetFlags: fleetFlags{parallel: supportParallel}, format: "wide"})
	var text bytes.Buffer
	if s != nil {
		writeStatus(&text, s.rows, true, s.notes...)
		b.addJSON("status.json", s.rows)
	}
	b.addText("status.txt", orError(text.String(), err))
	if s == nil || b.withoutLogs != "" {
		return
	}
	failed := map[string][]string{}
	for _, row := range s.rows {
		failed[row.Node] = row.FailedUnits
	}
	b.addJournals(a.ctx, remote, failed, supportParallel, supportLimit, func(ctx context.Context, node, unit string) ([]byte, error) {
		return conns.Run(ctx, node, nil, "journalctl", "--no-pager", "--quiet", "--output=short-iso", "--lines=500", "--unit="+unit)
	})
}

// orError returns the text, followed by the error if there is one.
func orError(text string, err error) string {
	if err != nil {
		text += "\n" + err.Error() + "\n"
	}
	return text
}

// supportBundle is the content of the file. All text in it passes through secrets.
type supportBundle struct {
	secrets secretTexts
	prefix  string
	now     time.Time
	files   []supportFile

	withoutLogs string // why the bundle contains no logs and no records of runs; "": it does
}

type supportFile struct {
	name string
	data []byte
}

// addText adds the end of a text without its secrets. The secrets are hidden first, because the part of a secret that remains after
// a cut could not be found.
func (b *supportBundle) addText(name, text string) {
	text = b.secrets.hide(text)
	b.files = append(b.files, supportFile{name, []byte(text[max(0, len(text)-supportLogSize):])})
}

func (b *supportBundle) addJSON(name string, value any) {
	data, err := json.MarshalIndent(value, "", "  ")
	b.addText(name, orError(string(data), err))
}

// addRuns adds the records of the last runs: what was run, its events, and the logs of its nodes.
func (b *supportBundle) addRuns(dir state.Dir) {
	list, err := runs.List(dir)
	if err != nil {
		b.addText("runs.txt", err.Error())
	}
	for _, summary := range list[:min(supportRuns, len(list))] {
		run, err := runs.Open(dir, summary.ID)
		if err != nil {
			b.addText("runs/"+summary.ID+".txt", err.Error())
			continue
		}
		b.addJSON("runs/"+run.ID+"/run.json", run)
		files := map[string]string{"events.jsonl": filepath.Join(run.Folder(), "events.jsonl")}
		for _, n := range run.Nodes {
			files["log-"+n.Node+".txt"] = run.LogFile(n.Node)
		}
		for _, name := range sortedNames(files) {
			if data, err := os.ReadFile(files[name]); err == nil {
				b.addText("runs/"+run.ID+"/"+name, string(data))
			}
		}
	}
}

// archive returns the bundle as a .tar.gz file.
func (b *supportBundle) archive() ([]byte, error) {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	files := tar.NewWriter(packed)
	for _, f := range b.files {
		header := &tar.Header{Name: b.prefix + strings.TrimPrefix(filepath.Clean("/"+f.name), "/"), Mode: 0o600, Size: int64(len(f.data)), ModTime: b.now}
		if err := files.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := files.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := files.Close(); err != nil {
		return nil, err
	}
	if err := packed.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
