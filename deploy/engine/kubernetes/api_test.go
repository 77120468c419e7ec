package kubernetes

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// JSON of a node is refused if it is too deep, or if it would need much more memory than its size.
func TestParseJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"items":[{"a":1}]}`: "",
		"":                    "printed no JSON",
		"{":                   "printed no JSON",
		strings.Repeat("[", 20<<20) + strings.Repeat("]", 20<<20):           "printed no JSON",
		strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000): "printed no JSON",
		"[" + strings.Repeat("0,", 2<<20) + "0]":                            "printed more than 524288 values",
	} {
		got := ""
		if _, err := ParseJSON([]byte(text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%.20q: %q, want %q", text, got, want)
		}
	}
}

func TestCheckCondition(t *testing.T) {
	for _, test := range []struct{ name, object, want string }{
		{"true", `{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[{"type":"Progressing","status":"False"},{"type":"Available","status":"True"}]}}`, ""},
		{"without generations", `{"status":{"conditions":[{"type":"Available","status":"True"}]}}`, ""},
		{"false", `{"status":{"conditions":[{"type":"Available","status":"False","message":"no pod is ready\nat all"}]}}`, "Available is False: no pod is ready"},
		{"unknown", `{"status":{"conditions":[{"type":"Available","status":"Unknown"}]}}`, "Available is Unknown"},
		{"absent", `{"status":{"conditions":[{"type":"Progressing","status":"True"}]}}`, "its status has no condition Available"},
		{"no status", `{}`, "its status has no condition Available"},
		{"old status", `{"metadata":{"generation":3},"status":{"observedGeneration":2,"conditions":[{"type":"Available","status":"True"}]}}`, "its latest change is not in its status yet"},
	} {
		got := ""
		if err := checkCondition(gjson.Parse(test.object), "Available"); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
