package page

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/nixbench/nixbench/deploy/report/frame"
)

// Noise contains what was measured beside a trial, as shares. A figure that was not measured is nil.
type Noise struct {
	Steal   *float64 // share of the processor time that the hypervisor of the computer used for other machines
	Foreign *float64 // share of the processor time that programs outside of the benchmark used
	PSI     *float64 // share of the time in which a program waited for a processor
	Canary  *float64 // share by which a fixed computation took longer than in the reference; less than 0: it took less time
}

// noiseFigures are the figures of noise that the page shows for each trial, in this order.
var noiseFigures = []struct {
	name string
	of   func(Noise) *float64
	both bool // values below the negative limit are too large, as well
}{
	{"steal", func(n Noise) *float64 { return n.Steal }, false},
	{"foreign", func(n Noise) *float64 { return n.Foreign }, false},
	{"psi", func(n Noise) *float64 { return n.PSI }, false},
	{"canary", func(n Noise) *float64 { return n.Canary }, true},
}

// addNoise draws the figures of noise of all trials in the order of time, with their limits.
func (v *view) addNoise(in Input) {
	trials := sortByTime(in.Trials)
	for _, f := range noiseFigures {
		low, high, any := 0.0, 0.0, false
		for _, t := range trials {
			if x := f.of(t.Noise); x != nil {
				low, high, any = min(low, *x), max(high, *x), true
			}
		}
		if !any {
			continue
		}
		p := plot{Title: f.name, Unit: "%", XName: "number of the trial"}
		limit := f.of(in.Quiet)
		if limit != nil && *limit >= 0 {
			high = max(high, *limit)
		}
		y, ticks := heights(100*low, 100*high)
		p.YTicks = ticks
		if limit != nil && *limit >= 0 {
			at := y.at(100 * *limit)
			p.Lines = append(p.Lines, line{X1: percent(left), X2: percent(right), Y1: at, Y2: at, Class: "limit"})
			if at := y.at(-100 * *limit); f.both && low < -*limit {
				p.Lines = append(p.Lines, line{X1: percent(left), X2: percent(right), Y1: at, Y2: at, Class: "limit"})
			}
		}
		width := float64(right-left) / float64(len(trials))
		for i, t := range trials {
			x := f.of(t.Noise)
			if x == nil {
				continue
			}
			from, to := y.position(0), y.position(100**x)
			top, height := min(from, to), max(from-to, to-from)
			if height < 1 { // an amount of 0 remains visible
				top, height = from-0.5, 1
			}
			p.Bars = append(p.Bars, bar{
				X: percent(left + width*(float64(i)+0.1)), Width: percent(width * 0.8), Y: percent(top), Height: percent(height), Class: verdictClass(t.Verdict),
				Title: fmt.Sprintf("trial %d, block %d, %s: %s %s, %s", t.Order, t.Block, nameCell(t.Cell), f.name, formatShare(x), t.Verdict),
			})
		}
		step := int(max(roundStep(float64(len(trials)), 6), 1))
		for i, t := range trials {
			if t.Order%step == 0 {
				p.XTicks = append(p.XTicks, frame.Tick{At: percent(left + width*(float64(i)+0.5)), Anchor: "middle", Text: strconv.Itoa(t.Order)})
			}
		}
		v.Noise = append(v.Noise, p)
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

// formatShare returns a share in percent, or a dash if it was not measured.
func formatShare(v *float64) string {
	if v == nil {
		return "–"
	}
	return strconv.FormatFloat(100**v, 'f', 1, 64) + " %"
}
