package player

import (
	"cmp"
	"slices"
)

// Request is a kind of request of a program, such as "POST pods" of an API server, and how many such requests the program has counted.
type Request struct {
	Program  string `json:"program"`            // the program that has counted the requests
	Sent     bool   `json:"sent,omitempty"`     // whether the program has sent the requests; otherwise it has received them
	Verb     string `json:"verb"`               // kind of the request in the words of the program, such as POST
	Resource string `json:"resource,omitempty"` // such as pods/binding
	Count    int64  `json:"count"`
}

// SubtractRequests returns the requests between two counts. If a program has counted fewer requests than before, it has started again, and its
// count began at zero.
func SubtractRequests(before, after []Request) []Request {
	had, now := countKinds(before), countKinds(after)
	for kind, n := range now {
		if n >= had[kind] {
			now[kind] -= had[kind]
		}
	}
	return listKinds(now)
}

// SumRequests adds the counts of equal kinds of requests, so that the result has one element for each kind.
func SumRequests(all []Request) []Request { return listKinds(countKinds(all)) }

// countKinds returns the number of requests of each kind, which is a request without a count.
func countKinds(all []Request) map[Request]int64 {
	out := map[Request]int64{}
	for _, r := range all {
		n := r.Count
		r.Count = 0
		out[r] += n
	}
	return out
}

// listKinds returns requests sorted by program; the most frequent requests of a program are first. It leaves out kinds without requests.
func listKinds(counts map[Request]int64) (out []Request) {
	for r, n := range counts {
		if r.Count = n; n > 0 {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Request) int {
		return cmp.Or(cmp.Compare(a.Program, b.Program), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Resource, b.Resource))
	})
	return out
}

// SumVerbs adds the counts of all resources, so that the result has one element for each program and verb.
func SumVerbs(all []Request) []Request {
	all = slices.Clone(all)
	for i := range all {
		all[i].Resource = ""
	}
	return SumRequests(all)
}

// Source returns the program, and whether it has sent the requests, as text.
func (r Request) Source() string {
	if r.Sent {
		return r.Program + " (sent)"
	}
	return r.Program
}

// Name returns the name that the kind of request has in exported results.
func (r Request) Name() string {
	name := "requests " + r.Program + " " + r.Verb
	if r.Resource != "" {
		name += " " + r.Resource
	}
	return name
}
