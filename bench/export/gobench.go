package export

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/nixbench/nixbench/bench"
)

// GoBench writes a sweep in the benchmark format of Go, which benchstat reads. A trial is a line. Its name has the factors and levels,
// and its units are the metrics. The verdict is a configuration line, so that benchstat does not mix trials with different verdicts.
// Blocks and attempts are not written, so that benchstat treats the trials of a cell as repetitions.
func GoBench(w io.Writer, s bench.Sweep, trials []Trial) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "sweep: %s\nsweep-id: %s\nnixbench: %s\nstarted: %s\n", oneLine(s.Name), oneLine(s.ID), oneLine(s.Nixbench), s.Created.UTC().Format(time.RFC3339))
	verdict := ""
	for _, t := range trials {
		line := ""
		for _, name := range t.metricNames() {
			if v := t.Attempt.Result.Metrics[name]; !math.IsNaN(v) {
				line += " " + format(v) + " " + escapeWord(name, "%")
			}
		}
		if line == "" {
			continue // a trial without metrics has no line, because a line needs a value
		}
		if t.Attempt.State != verdict {
			verdict = t.Attempt.State
			fmt.Fprintf(b, "\nverdict: %s\n", oneLine(verdict))
		}
		fmt.Fprintf(b, "%s 1%s\n", benchmarkName(s, t), line)
	}
	return b.Flush()
}

// processorSuffix matches the end of a benchmark's name, such as -8, that benchstat would take for a number of processors.
var processorSuffix = regexp.MustCompile(`-(\d+)$`)

func benchmarkName(s bench.Sweep, t Trial) string {
	name := "BenchmarkTrial"
	for _, f := range factors(s) {
		name += "/" + escapeWord(f, "%/=") + "=" + escapeWord(t.Cell[f], "%/")
	}
	return processorSuffix.ReplaceAllString(name, "%2D$1")
}

// escapeWord replaces white space, and the characters in separators, by their codes, as in URLs (%20).
func escapeWord(text, separators string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(separators, r) {
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// oneLine replaces control characters, such as line ends, by spaces.
func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text))
}
