package stats

import (
	"math"
	"slices"
	"sort"

	"github.com/aclements/go-moremath/stats"
)

// Level is the share of wrong answers that all tests of a family may give together. Intervals contain the true value with a probability of
// 1 - Level.
const Level = 0.05

// MinUnits is the minimum number of blocks, or of sweeps on each side, for an interval and an answer.
const MinUnits = 3

// power is the probability with which the suggested number of blocks finds a difference as large as the measured one.
const power = 0.8

// Interval is a confidence interval.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// estimate is a mean of logarithms, with its standard error and the degrees of freedom of the standard error. All inference of this
// package is the t-test of such a mean: its exponential is a geometric mean.
type estimate struct {
	mean, se float64
	df       int
}

// estimateMean returns the mean of logarithms.
func estimateMean(logs []float64) estimate {
	mean, squares := deviations(logs)
	n := float64(len(logs))
	if len(logs) < 2 {
		return estimate{mean: mean}
	}
	return estimate{mean, math.Sqrt(squares / (n - 1) / n), len(logs) - 1}
}

// estimateDifference returns the difference between the means of two lists of logarithms that are not paired. Their variances are pooled, so
// that one list may have a single value.
func estimateDifference(a, b []float64) estimate {
	meanA, squaresA := deviations(a)
	meanB, squaresB := deviations(b)
	e := estimate{mean: meanA - meanB, df: len(a) + len(b) - 2}
	if e.df > 0 {
		e.se = math.Sqrt((squaresA + squaresB) / float64(e.df) * (1/float64(len(a)) + 1/float64(len(b))))
	}
	return e
}

// deviations returns the mean of values, and the sum of the squares of their deviations from it.
func deviations(values []float64) (mean, squares float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return mean, squares
}

// p returns the p-value of the two-sided test that the geometric mean is value.
func (e estimate) p(value float64) float64 {
	distance := math.Abs(e.mean - math.Log(value))
	switch {
	case distance < 1e-12:
		return 1
	case e.se < 1e-12:
		return 0 // the same value in all blocks
	}
	return 2 * stats.TDist{V: float64(e.df)}.CDF(-distance/e.se)
}

// interval returns the interval that contains the geometric mean with a probability of 1 - level.
func (e estimate) interval(level float64) Interval {
	half := e.se * quantile(1-level/2, e.df)
	return Interval{math.Exp(e.mean - half), math.Exp(e.mean + half)}
}

// quantile returns the value that a t-distributed variable does not exceed with the probability p, which is above a half. Newton's method
// approaches it from below, because the distribution is concave there.
func quantile(p float64, df int) float64 {
	t := stats.TDist{V: float64(df)}
	x := math.Sqrt2 * math.Erfinv(2*p-1) // that of the normal distribution, which is smaller
	for range 200 {
		step := (p - t.CDF(x)) / t.PDF(x)
		if x += step; step < 1e-9*x {
			break
		}
	}
	return x
}

// factor returns the difference that a test with n blocks finds with a probability of power, in units of the standard deviation of a block.
// It uses the approximation of the noncentral t-distribution by Johnson and Welch.
func factor(n int, level float64) float64 {
	df := float64(n - 1)
	t := quantile(1-level/2, n-1)
	return (t*(1-1/(4*df)) + math.Sqrt2*math.Erfinv(2*power-1)*math.Sqrt(1+t*t/(2*df))) / math.Sqrt(float64(n))
}

// maxUnits is the maximum number of blocks that the text of an unclear answer suggests.
const maxUnits = 1000

// unitsNeeded returns the smallest number of blocks, more than n, that finds a difference of the logarithms with a probability of power. sd is
// the standard deviation of a block. It returns more than maxUnits if that number would not suffice.
func unitsNeeded(difference, sd float64, n int, level float64) int {
	return n + 1 + sort.Search(maxUnits-n, func(i int) bool { return sd*factor(n+1+i, level) <= difference })
}

// Detectable returns the smallest ratio above 1 that a comparison of two cells finds with a probability of 80 %. noise is the standard
// deviation of the logarithm of a result, and comparisons is the number of comparisons among which the correction counts this one.
func Detectable(noise float64, blocks, comparisons int) float64 {
	if blocks < MinUnits {
		return math.Inf(1)
	}
	return math.Exp(math.Sqrt2 * noise * factor(blocks, Level/float64(max(comparisons, 1))))
}

// Spend returns the share of Level that tests may use which look at a sweep after a number of blocks. A sweep may be extended up to max
// blocks; earlier has the numbers of blocks after which its results were read before. Each look spends the part of Level that belongs to
// the blocks since the last look, so that all looks together give at most Level wrong answers.
func Spend(blocks, max int, earlier []int) float64 {
	if blocks > max {
		return 0 // beyond the declared maximum, nothing is left
	}
	last := slices.Max(append(Keep(earlier, func(n int) bool { return n < blocks }), 0))
	return Level * (float64(blocks-last) / float64(max))
}
