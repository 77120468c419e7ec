package kubernetes

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/bench/player"
)

var errLost = errors.New("connection lost")

// The requests are the sum over the API servers, and those of kube-scheduler, where it answers. The files have what Kubernetes 1.34 printed.
func TestRequests(t *testing.T) {
	got, err := newFake(t).player(Options{}).Requests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []player.Request{
		{Program: "kube-apiserver", Verb: "PATCH", Resource: "pods/status", Count: 2 * 32},
		{Program: "kube-apiserver", Verb: "GET", Resource: "serviceaccounts", Count: 2 * 28},
		{Program: "kube-apiserver", Verb: "GET", Resource: "/healthz", Count: 2},
		{Program: "kube-apiserver", Verb: "LIST", Resource: "mutatingwebhookconfigurations.admissionregistration.k8s.io", Count: 2},
		{Program: "kube-scheduler", Sent: true, Verb: "GET", Count: 38 + 33 + 1 + 21},
		{Program: "kube-scheduler", Sent: true, Verb: "POST", Count: 13},
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%+v is missing in %+v", want, got)
		}
	}
}

func TestRequestErrors(t *testing.T) {
	f := newFake(t)
	f.noScheduler = true
	got, err := f.player(Options{}).Requests(t.Context())
	if err != nil || slices.ContainsFunc(got, func(r player.Request) bool { return r.Program != "kube-apiserver" }) {
		t.Errorf("%+v, %v", got, err)
	}
	for text, answer := range map[string]error{"connection lost": errLost, "has no metric apiserver_request_total": nil} {
		f.answer["kubectl"] = func(int) (string, error) { return "# TYPE up gauge\n", answer }
		if _, err := f.player(Options{}).Requests(t.Context()); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if got := parseMetrics("apiserver_request_total{verb=\"GET\"\napiserver_request_total{verb=\"GET\"} x\napiserver_request_total_sum{verb=\"GET\"} 1\n", received); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}
