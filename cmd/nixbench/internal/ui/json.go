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

func (j *jsonLines) event(e event.Event) { _ = j.enc.Encode(e) }

func (j *jsonLines) waiting(late []event.Event) {
	for _, e := range late {
		j.event(e)
	}
}

func (j *jsonLines) output(node, line string) {
	j.event(event.Event{Time: time.Now(), Kind: event.NodeLog, Node: node, Text: line})
}

func (j *jsonLines) result(value any, _ func(io.Writer)) {
	_ = j.enc.Encode(struct {
		Time   time.Time `json:"time"`
		Kind   string    `json:"event"`
		Result any       `json:"result"`
	}{time.Now(), "result", value})
}

func (j *jsonLines) problems(code int, problems []Problem) {
	_ = j.enc.Encode(struct {
		Time     time.Time `json:"time"`
		Kind     string    `json:"event"`
		Code     int       `json:"code"`
		Problems []Problem `json:"problems"`
	}{time.Now(), "error", code, problems})
}

func (j *jsonLines) close() {}
