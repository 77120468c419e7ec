package results

import (
	"fmt"
	"strings"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/event"
)

// assumedDeployment is the time, in seconds, of the deployment before a trial, if the hive has had no trial yet.
const assumedDeployment = 60

// Duration is how long a sweep is expected to take, without the builds of its systems and without repeated trials.
type Duration struct {
	Seconds  float64 `json:"seconds"`
	Trials   int     `json:"trials"`
	Measured int     `json:"measured"` // number of trials that count with the time of former trials of their cell
	// Deployment is how many seconds each other trial takes in addition to the times of its jobs, on average of all former trials of the hive.
	// Assumed means that there is none: Deployment is then an assumption.
	Deployment float64 `json:"deployment"`
	Assumed    bool    `json:"assumed"`
}

// ExpectDuration returns how long a sweep of a benchmark with these workloads is expected to take. former are sweeps of the hive.
func ExpectDuration(b bench.Benchmark, described map[string]bench.Workload, jobs map[string][]workload.Job, former []*bench.Store) (d Duration, err error) {
	took, others := map[string][]float64{}, []float64{} // seconds: by cell, and of all trials without their workloads
	for _, st := range former {
		all, err := st.AllAttempts()
		if err != nil {
			return d, err
		}
		for _, t := range st.Sweep.Trials {
			w, of := t.Workload(), st.Sweep.Benchmark
			for _, a := range all[t.Number] {
				if a.State == bench.Failed || of.Reset != b.Reset {
					continue
				}
				seconds := a.Ended.Sub(a.Began).Seconds()
				others = append(others, seconds-a.Phases["play"])
				if st.Sweep.Workloads[w] == described[w] && (a.Result.Complete || of.Workloads[w].TimeLimit == b.Workloads[w].TimeLimit) {
					took[t.String()] = append(took[t.String()], seconds)
				}
			}
		}
	}
	if d.Deployment, d.Assumed = mean(others), len(others) == 0; d.Assumed {
		d.Deployment = assumedDeployment
	}
	_, trials := bench.Plan(b)
	d.Trials = len(trials)
	for i, t := range trials {
		if former := took[t.String()]; len(former) > 0 {
			d.Measured++
			d.Seconds += mean(former)
			continue
		}
		limit, list := b.Workloads[t.Workload()].TimeLimit, jobs[t.Workload()]
		if len(list) > 0 { // otherwise, a program decides the jobs
			limit = min(limit, workload.Length(list))
		}
		d.Seconds += limit
		if d.Assumed {
			d.Seconds += b.Pause
		}
		if !d.Assumed || b.Reset == bench.Fresh || i == 0 || trials[i-1].Configuration != t.Configuration {
			d.Seconds += d.Deployment
		}
	}
	return d, nil
}

// String returns the duration as text, with its basis.
func (d Duration) String() string {
	var basis []string
	if d.Measured > 0 {
		basis = append(basis, event.Count(d.Measured, "trial")+" as in former trials of the cell")
	}
	if n := d.Trials - d.Measured; n > 0 {
		how := map[bool]string{true: "an assumed", false: "a measured"}[d.Assumed]
		basis = append(basis, fmt.Sprintf("%s by the times of the jobs and %s %s per deployment", event.Count(n, "trial"), how, formatSeconds(d.Deployment)))
	}
	return fmt.Sprintf("expected duration: %s, without builds and repeated trials (%s)", formatSeconds(d.Seconds), strings.Join(basis, "; "))
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}
