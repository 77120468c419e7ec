package page

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/nixbench/nixbench/bench/noise"
)

// noiseFigures are the figures of noise that the page shows for each trial, in this order. All are shares.
var noiseFigures = []struct {
	name  string
	of    func(noise.Report) *float64
	limit func(noise.Thresholds) float64
	both  bool // a value below the negative limit also exceeds the limit
}{
	{"steal", func(r noise.Report) *float64 { return r.Steal }, func(t noise.Thresholds) float64 { return t.Steal }, false},
	{"foreign", func(r noise.Report) *float64 { return r.ForeignCPU }, func(t noise.Thresholds) float64 { return t.ForeignCPU }, false},
	{"psi", func(r noise.Report) *float64 { return r.PSICPU }, func(t noise.Thresholds) float64 { return t.PSICPU }, false},
	{"canary", noise.Report.Slowdown, func(t noise.Thresholds) float64 { return t.Canary }, true},
}

// addNoise draws each measured noise value (such as stolen processor time) of all trials in the order of time, with the limit above which a trial is
// disturbed.
func (v *view) addNoise(in Input) {
	trials := sortByTime(in.Trials)
	for _, f := range noiseFigures {
		var limits []float64
		if limit := f.limit(in.Quiet); limit >= 0 {
			limits = []float64{100 * limit}
			if f.both && slices.ContainsFunc(trials, func(t Trial) bool { x := f.of(t.Noise); return x != nil && *x < -limit }) {
				limits = append(limits, -100*limit)
			}
		}
		p, ok := plotByTime(trials, plot{Title: f.name, Unit: "%"}, limits, func(t Trial) (float64, point, bool) {
			x := f.of(t.Noise)
			if x == nil {
				return 0, point{}, false
			}
			title := fmt.Sprintf("trial %d, block %d, %s: %s %s, %s", t.Order, t.Block, nameCell(t.Cell), f.name, formatShare(x), t.Verdict)
			return 100 * *x, point{Class: verdictClass(t.Verdict), Title: title}, true
		})
		if ok {
			v.Noise = append(v.Noise, p)
		}
	}
	if len(v.Noise) == 0 {
		return
	}
	v.Figures.Head = []string{"Cell", "Trial", "Block", "Verdict"}
	for _, f := range noiseFigures {
		v.Figures.Head = append(v.Figures.Head, f.name)
	}
	for _, t := range trials {
		row := []string{nameCell(t.Cell), fmt.Sprint(t.Order), fmt.Sprint(t.Block), t.Verdict}
		for _, f := range noiseFigures {
			row = append(row, formatShare(f.of(t.Noise)))
		}
		v.Figures.Rows = append(v.Figures.Rows, row)
	}
}

func sortByTime(trials []Trial) []Trial {
	out := slices.Clone(trials)
	slices.SortStableFunc(out, func(a, b Trial) int { return cmp.Compare(a.Order, b.Order) })
	return out
}

// verdictClass returns the CSS class of a verdict.
func verdictClass(verdict string) string {
	if letters[verdict] == "" {
		return "v-other"
	}
	return "v-" + verdict
}

// formatShare returns the text of a share in percent, or a dash if the share was not measured.
func formatShare(v *float64) string {
	if v == nil {
		return "–"
	}
	return strconv.FormatFloat(100**v, 'f', 1, 64) + " %"
}
