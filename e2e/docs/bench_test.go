package docs

import (
	"os"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/bench/trial"
)

// docs/bench.md explains each metric.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/bench.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range trial.Metrics {
		if !strings.Contains(string(text), "`"+m+"`") {
			t.Errorf("docs/bench.md does not have the metric %s", m)
		}
	}
}
