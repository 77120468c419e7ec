package export

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// OpenMetrics writes each metric as a gauge, whose labels are the sweep, the factors, and what identifies the trial. The time of a value is the
// end of the trial.
func OpenMetrics(w io.Writer, s Sweep) error {
	names := map[string]bool{}
	labels := make([]string, len(s.Trials))
	factors := s.factorNames(cleanName)
	for i, t := range s.Trials {
		levels, err := s.levels(t)
		if err != nil {
			return err
		}
		pairs := []string{label("sweep", s.Name), label("sweep_id", s.ID), label("cell", t.Cell)}
		for k, f := range factors {
			pairs = append(pairs, label(f, levels[k]))
		}
		pairs = append(pairs, label("block", strconv.Itoa(t.Block)), label("order", strconv.Itoa(t.Order)),
			label("attempt", strconv.Itoa(t.Attempt)), label("verdict", t.Verdict))
		labels[i] = strings.Join(pairs, ",")
		for name := range t.Metrics {
			names[name] = true
		}
	}

	b := bufio.NewWriter(w)
	families := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		family := unique("nixbench_"+cleanName(name), "", families)
		fmt.Fprintf(b, "# TYPE %s gauge\n# HELP %s %s of a trial\n", family, family, escapeText(name))
		for i, t := range s.Trials {
			v, ok := t.Metrics[name]
			if !ok {
				continue
			}
			fmt.Fprintf(b, "%s{%s} %s", family, labels[i], format(v))
			if !t.Ended.IsZero() {
				fmt.Fprintf(b, " %d.%03d", t.Ended.Unix(), t.Ended.Nanosecond()/1e6)
			}
			b.WriteByte('\n')
		}
	}
	b.WriteString("# EOF\n")
	return b.Flush()
}

func label(name, value string) string { return name + `="` + escapeText(value) + `"` }

func escapeText(text string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(strings.ToValidUTF8(text, "\ufffd"))
}

// cleanName returns a name of a label: ASCII letters, digits and underscores, which begins with a letter.
func cleanName(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
	if clean == "" || clean[0] == '_' || clean[0] >= '0' && clean[0] <= '9' {
		return "x" + clean
	}
	return clean
}
