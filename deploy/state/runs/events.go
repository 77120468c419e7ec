package runs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
)

// ReadEvents reads events, one JSON object per line. It skips damaged lines and returns their number: the last line may
// be incomplete if the run was killed, and any line if the disk was full.
func ReadEvents(r io.Reader) (events []event.Event, damaged int, err error) {
	b := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := b.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			var e event.Event
			if json.Unmarshal(line, &e) != nil || e.Kind == "" {
				damaged++
			} else {
				events = append(events, e)
			}
		}
		if errors.Is(err, io.EOF) {
			return events, damaged, nil
		}
		if err != nil {
			return nil, damaged, err
		}
	}
}

// Logs returns what each node printed during a run, by the name of the node. Each line begins with its time.
func Logs(events []event.Event) map[string]string {
	logs := map[string]*strings.Builder{}
	for _, e := range events {
		if e.Kind != event.NodeLog {
			continue
		}
		if logs[e.Node] == nil {
			logs[e.Node] = &strings.Builder{}
		}
		for line := range strings.SplitSeq(strings.TrimRight(event.Printable(e.Text), "\n"), "\n") {
			fmt.Fprintf(logs[e.Node], "%s %s\n", e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), line)
		}
	}
	out := map[string]string{}
	for node, log := range logs {
		out[node] = log.String()
	}
	return out
}
