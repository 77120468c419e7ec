package ui

import (
	"encoding/json"
	"io"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
)

// jsonLines writes one JSON object per line. The last line is always a result or an error.
type jsonLines struct{ enc *json.Encoder }

func newJSON(w io.Writer) *jsonLines {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &jsonLines{enc}
}

func (j *jsonLines) showEvent(e event.Event) { _ = j.enc.Encode(e) }

func (j *jsonLines) showWaits(late []event.Event) {
	for _, e := range late {
		j.showEvent(e)
	}
}

func (j *jsonLines) showOutput(node, line string) {
	j.showEvent(event.Event{Time: time.Now(), Kind: event.NodeLog, Node: node, Text: line})
}

func (j *jsonLines) prepareRaw() {}

func (j *jsonLines) showResult(value any, _ func(io.Writer)) {
	_ = j.enc.Encode(struct {
		Time   time.Time `json:"time"`
		Kind   string    `json:"event"`
		Result any       `json:"result"`
	}{time.Now(), "result", value})
}

func (j *jsonLines) showProblems(code int, problems []Problem) {
	_ = j.enc.Encode(struct {
		Time     time.Time `json:"time"`
		Kind     string    `json:"event"`
		Code     int       `json:"code"`
		Problems []Problem `json:"problems"`
	}{time.Now(), "error", code, problems})
}

func (j *jsonLines) close() {}
