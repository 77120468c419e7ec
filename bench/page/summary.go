package page

import (
	"math"

	"github.com/nixbench/nixbench/bench/stats"
)

// Summary contains the results of a sweep that its page shows, as JSON for other programs.
type Summary struct {
	Medians []Median `json:"medians"`
	Ratios  []Ratio  `json:"ratios"`
	Floor   Floor    `json:"floor"`
}

// Median is the median of a metric in a cell, with its confidence interval.
type Median struct {
	Cell       map[string]string `json:"cell"`
	Metric     string            `json:"metric"`
	Unit       string            `json:"unit,omitempty"`
	Median     *float64          `json:"median"`         // null: the median trial did not finish
	Low        *float64          `json:"low,omitempty"`  // ends of the 95 % interval; absent if there is none, or if the median trial did not finish
	High       *float64          `json:"high,omitempty"` // see Low
	Trials     int               `json:"trials"`
	Unfinished int               `json:"unfinished,omitempty"` // number of trials that did not finish
}

// Ratio is the ratio of the medians of two levels of a factor.
type Ratio struct {
	Cell   map[string]string `json:"cell"` // the levels of the other factors
	Factor string            `json:"factor"`
	A      string            `json:"a"`
	B      string            `json:"b"`
	stats.Comparison
}

// Floor is the noise floor: comparisons of trials with equal settings.
type Floor struct {
	Of     string  `json:"of,omitempty"` // what is compared: equal "cells", or the two halves of the "blocks" of each cell; absent: there is no noise floor
	Text   string  `json:"text,omitempty"`
	Ratios []Ratio `json:"ratios"`
}

// Summarise returns the medians of all metrics, the ratios of levels, and the noise floor.
func Summarise(in Input) Summary {
	a := analyse(in)
	out := Summary{Medians: []Median{}, Ratios: toRatios(a.ratios), Floor: Floor{Of: a.kind, Text: a.summariseFloor(), Ratios: toRatios(a.floor)}}
	for _, g := range a.cells {
		for _, m := range allMetrics(g.Samples) {
			s, ok := stats.Median(g.Samples, m.Name)
			if !ok {
				continue
			}
			x := Median{Cell: g.Cell, Metric: m.Name, Unit: m.Unit, Median: finite(s.Median), Trials: s.Count, Unfinished: s.Incomplete}
			if s.Interval != nil {
				x.Low, x.High = finite(s.Interval.Low), finite(s.Interval.High)
			}
			out.Medians = append(out.Medians, x)
		}
	}
	return out
}

func toRatios(ratios []ratio) []Ratio {
	out := []Ratio{}
	for _, r := range ratios {
		out = append(out, Ratio{r.cell, r.factor, r.a, r.b, r.Comparison})
	}
	return out
}

// finite returns a pointer to v. It returns nil if v is infinite or NaN, which JSON cannot contain.
func finite(v float64) *float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}
