package page

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"html/template"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
)

// plot is a drawing of points and lines in two dimensions. Positions are in percent of the drawing, so that it fits phones,
// screens and paper, and texts are not stretched.
type plot struct {
	Title, Unit, XName string
	XTicks, YTicks     []tick
	Lines              []line
	Points             []point
	Legend             []series
	Data               [][]string // the drawn values as a table, whose first row has the names of the columns
}

type line struct{ X1, Y1, X2, Y2, Class string }

type point struct{ X, Y, Class, Title string }

// series is an entry of a legend: a name and the CSS class of its line. Y is its height in a file with one drawing.
type series struct {
	Name, Class string
	Y           int
}

// colours is the number of colours that page.css has for series. Series with a higher index have dashed lines.
const colours = 8

func makeSeries(names []string) (out []series) {
	for i, n := range names {
		class := fmt.Sprintf("c%d", i%colours)
		if i >= colours {
			class += " again"
		}
		out = append(out, series{n, class, legendTop + 20*i})
	}
	return out
}

func classOf(all []series, name string) string {
	i := slices.IndexFunc(all, func(s series) bool { return s.Name == name })
	return all[max(i, 0)].Class
}

// The borders of the drawing area within a plot, in percent. The texts of the vertical axis are to the left of this area, and the texts of
// the horizontal axis are below.
const left, right, top, bottom = 14, 97, 6, 90

func percent(v float64) string { return fmt.Sprintf("%.2f%%", v) }

// scale maps values to positions.
type scale struct {
	from, to   float64 // values
	begin, end float64 // positions
	log        bool
}

func (s scale) at(v float64) string { return percent(s.position(v)) }

func (s scale) position(v float64) float64 {
	from, to := s.from, s.to
	if s.log {
		v, from, to = math.Log(v), math.Log(from), math.Log(to)
	}
	if from == to {
		return (s.begin + s.end) / 2
	}
	return s.begin + (v-from)/(to-from)*(s.end-s.begin)
}

// heights returns a vertical scale for values from low to high, with its ticks. The scale begins at 0, or at low if low is below 0:
// inexact clocks cause such values.
func heights(low, high float64) (scale, []tick) {
	low = min(low, 0)
	if high <= low {
		high = low + 1
	}
	s := scale{from: low, to: high, begin: bottom, end: top}
	step := roundUp((high - low) / 4)
	var ticks []tick
	for i := math.Ceil(low / step); i*step <= high; i++ {
		ticks = append(ticks, tick{At: s.at(i * step), Text: formatTick(i * step)})
	}
	return s, ticks
}

// roundUp returns the smallest number of the form 1, 2 or 5 times a power of ten that is at least v.
func roundUp(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= v {
			return f * power
		}
	}
	return 10 * power
}

// formatTick returns the text of a tick without zeros at the end.
func formatTick(v float64) string {
	if v == 0 { // also -0
		return "0"
	}
	if math.Abs(v) >= 1e6 || math.Abs(v) < 1e-4 {
		return fmt.Sprintf("%.3g", v)
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64)
}

func (a analysis) pointTitle(t Trial, metric string) string {
	title := fmt.Sprintf("%s: %s, trial %d, block %d", a.name(t.Cell), formatUnit(t.Metrics[metric], metric), t.Order, t.Block)
	if t.State != bench.Valid {
		title += ", " + t.State
	}
	return title
}

// axis returns the factor on the horizontal axis of drawings of results: the factor with the most levels that are numbers, otherwise the
// scheduler, otherwise the first factor. The factor has no name if there is none.
func (a analysis) axis() factor {
	var out factor
	for _, f := range a.factors {
		switch {
		case f.name == bench.WorkloadFactor:
		case out.name == "", len(f.numbers) > len(out.numbers), out.numbers == nil && f.name == "scheduler":
			out = f
		}
	}
	if out.name == "" {
		out.levels = []string{""}
	}
	return out
}

// plotResults draws a metric of all cells with one workload: the mean of each cell with its interval, and each trial as a small point. The
// levels of the factor f are on the horizontal axis, and each combination of the other levels is a series. It returns false if no trial
// has the metric.
func (a analysis) plotResults(cells []stats.Group, f factor, metric string) (plot, bool) {
	p := plot{Title: metric, Unit: trial.Unit(metric), XName: strings.TrimPrefix(f.name, "roles.")}
	if p.XName != "" {
		p.Unit += " by " + p.XName
	}
	p.Data = [][]string{{"series", p.XName, "mean", "low", "high", "trials"}}
	workload := cells[0].Cell[bench.WorkloadFactor]
	low, high := math.Inf(1), math.Inf(-1)
	var trials []Trial
	for _, t := range a.all {
		if v, have := t.Metrics[metric]; have && t.Cell[bench.WorkloadFactor] == workload {
			trials = append(trials, t)
			low, high = min(low, v), max(high, v)
		}
	}
	if len(trials) == 0 {
		return p, false
	}
	var samples []stats.Sample
	for _, g := range cells {
		samples = append(samples, g.Samples...)
		if s, ok := stats.Mean(g.Samples, metric); ok && s.Interval != nil {
			high = max(high, min(s.Interval.High, 1.5*high)) // a long interval of few trials does not make all others small
		}
	}
	y, ticks := heights(low, high)
	p.YTicks = ticks
	place := a.placeLevels(&p, f)
	seriesOf := func(cell map[string]string) string {
		return a.name(stats.Without(cell, f.name, bench.WorkloadFactor, bench.RepeatFactor))
	}
	groups := stats.GroupBy(samples, f.name, bench.WorkloadFactor)
	names := stats.Map(groups, func(g stats.Group) string { return seriesOf(g.Cell) })
	p.Legend = makeSeries(names)
	shift := map[string]float64{} // series at the same level are drawn side by side
	for i, name := range names {
		shift[name] = (float64(i) - float64(len(names)-1)/2) * min(1.6, 10/float64(len(names)))
	}
	for _, t := range trials {
		name := seriesOf(t.Cell)
		if at, known := place[t.Cell[f.name]]; known {
			class := "trial " + classOf(p.Legend, name)
			if t.State == bench.Invalid {
				class += " hollow"
			}
			p.Points = append(p.Points, point{percent(at + shift[name]), y.at(t.Metrics[metric]), class, a.pointTitle(t, metric)})
		}
	}
	for _, g := range groups {
		name := seriesOf(g.Cell)
		class := classOf(p.Legend, name)
		last := line{Class: class}
		for _, level := range f.levels {
			s, ok := stats.Mean(stats.Select(g.Samples, f.name, level), metric)
			if s.Mean == nil {
				if ok { // a trial did not finish, so the line has a gap here
					last.X1 = ""
				}
				continue
			}
			x, interval := percent(place[level]+shift[name]), []string{"", ""}
			if i := s.Interval; i != nil {
				p.Lines = append(p.Lines, line{x, y.at(i.Low), x, percent(max(y.position(i.High), 0)), "interval " + class})
				interval = []string{fmt.Sprint(i.Low), fmt.Sprint(i.High)}
			}
			p.Data = append(p.Data, []string{name, level, fmt.Sprint(*s.Mean), interval[0], interval[1], fmt.Sprint(s.Trials)})
			title := fmt.Sprintf("%s: mean %s (%s)", a.name(g.Cell), formatUnit(*s.Mean, metric), FormatInterval(s.Interval))
			p.Points = append(p.Points, point{x, y.at(*s.Mean), "mean " + class, title})
			last.X2, last.Y2 = x, y.at(*s.Mean)
			if last.X1 != "" && f.numbers != nil {
				p.Lines = append(p.Lines, last)
			}
			last.X1, last.Y1 = last.X2, last.Y2
		}
	}
	return p, true
}

// placeLevels returns the horizontal positions of the levels of a factor, and adds their ticks to the drawing.
func (a analysis) placeLevels(p *plot, f factor) map[string]float64 {
	if f.name == "" {
		return map[string]float64{"": (left + right) / 2.0}
	}
	x := scale{from: -0.5, to: float64(len(f.levels)) - 0.5, begin: left, end: right}
	if f.numbers != nil {
		x = scale{from: f.numbers[0], to: f.numbers[len(f.numbers)-1], begin: left + 8, end: right - 8}
		x.log = x.from > 0 && x.to/x.from >= 8
	}
	out := map[string]float64{}
	for i, level := range f.levels {
		v := float64(i)
		if f.numbers != nil {
			v = f.numbers[i]
		}
		out[level] = x.position(v)
		p.XTicks = append(p.XTicks, tick{At: percent(out[level]), Anchor: "middle", Text: level})
	}
	return out
}

// drawing is the input of the template of a file with one drawing.
type drawing struct {
	plot
	Height int
	Table  string // the drawn values as CSV
	Style  template.CSS
}

const legendTop = 390

// drawingStyle is the style of a file with one drawing. Its colours are plain, because programs that convert drawings know no variables.
const drawingStyle = `.c0{color:#2f7fd1}.c1{color:#e2711d}.c2{color:#2f8f5b}.c3{color:#b0529f}.c4{color:#6f5bd0}.c5{color:#a07800}.c6{color:#1f8f97}.c7{color:#c0504d}
.line{stroke:currentColor;stroke-width:2;fill:none;vector-effect:non-scaling-stroke}.again{stroke-dasharray:5 4}
circle{fill:currentColor;stroke:currentColor}.trial{r:2px;fill-opacity:.35}.hollow{fill:none}text{fill:#333}.grid{stroke:#ddd}`

// Drawings returns each drawing of a page as an SVG file that needs no other files, by the name of the file. The element metadata of a
// drawing has its values as CSV.
func Drawings(in Input) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, w := range newView(in).Workloads {
		for _, p := range w.Plots {
			d := drawing{plot: p, Height: legendTop + 20*len(p.Legend), Style: drawingStyle}
			var table strings.Builder
			if err := csv.NewWriter(&table).WriteAll(p.Data); err != nil {
				return nil, err
			}
			d.Table = table.String()
			var b bytes.Buffer
			if err := execute(&b, plotHTML+`{{template "drawing" .}}`, d); err != nil {
				return nil, err
			}
			name := strings.Trim(notInNames.ReplaceAllString(w.Name+"-"+p.Title, "-"), "-")
			for n, first := 2, name; out[name+".svg"] != nil; n++ {
				name = fmt.Sprintf("%s-%d", first, n)
			}
			out[name+".svg"] = b.Bytes()
		}
	}
	return out, nil
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_.=]+`)
