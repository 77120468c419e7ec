package player

import (
	"cmp"
	"context"
	"slices"
)

// Request is a kind of request of a program, such as "POST pods" of an API server, and how many such requests the program has
// counted.
type Request struct {
	Program  string `json:"program"`            // the program that has counted the requests
	Sent     bool   `json:"sent,omitempty"`     // whether the program has sent the requests; otherwise it has received them
	Verb     string `json:"verb"`               // kind of the request in the words of the program, such as POST
	Resource string `json:"resource,omitempty"` // such as pods/binding
	Count    int64  `json:"count"`
}

// Requester is an optional interface of a player whose scheduler counts requests.
type Requester interface {
	// Requests returns the requests that programs of the scheduler have counted since they started.
	Requests(ctx context.Context) ([]Request, error)
}

// SubtractRequests returns the requests between two counts. It sorts them by program, and the most frequent requests of a program
// are first. If a program has counted fewer requests than before, it has started again, and its count began at zero.
func SubtractRequests(before, after []Request) []Request {
	had := map[Request]int64{}
	for _, r := range before {
		had[r.kind()] += r.Count
	}
	var out []Request
	for _, r := range SumRequests(after) {
		if had := had[r.kind()]; r.Count >= had {
			r.Count -= had
		}
		if r.Count > 0 {
			out = append(out, r)
		}
	}
	sortRequests(out)
	return out
}

// SumRequests adds the counts of equal kinds of requests, so that the result has one element for each kind.
func SumRequests(all []Request) []Request {
	index := map[Request]int{}
	var out []Request
	for _, r := range all {
		i, ok := index[r.kind()]
		if !ok {
			i, index[r.kind()] = len(out), len(out)
			out = append(out, r.kind())
		}
		out[i].Count += r.Count
	}
	sortRequests(out)
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

// kind returns the kind of the requests: the request without a count.
func (r Request) kind() Request {
	r.Count = 0
	return r
}

func sortRequests(all []Request) {
	slices.SortFunc(all, func(a, b Request) int {
		return cmp.Or(cmp.Compare(a.Program, b.Program), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Resource, b.Resource))
	})
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
