package kubernetes

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/bench/player"
	kubernetesengine "github.com/nixbench/nixbench/deploy/engine/kubernetes"
)

// Names of metrics that count requests. The API server counts a request when the request ends: a watch when its client ends the
// watch, or after some minutes.
const (
	received = "apiserver_request_total"
	sent     = "rest_client_requests_total"
)

// Requests implements [player.Player]. It reads the metrics of all API servers, and of kube-scheduler on each node where
// kube-scheduler answers. These reads are requests, too: one to each API server.
func (p *Player) Requests(ctx context.Context) ([]player.Request, error) {
	ctx, cancel := context.WithTimeout(ctx, player.CommandTimeout)
	defer cancel()
	var all []player.Request
	for _, node := range p.Cluster.NodesOf(kubernetesengine.ControlPlane) {
		out, err := p.RunLong(ctx, node, nil, p.admin("get", "--raw", "/metrics")...)
		if err != nil {
			return nil, fmt.Errorf("kubernetes: read the number of requests on %s: %w", node, err)
		}
		requests := parseMetrics(string(out), received)
		if len(requests) == 0 {
			return nil, fmt.Errorf("kubernetes: read the number of requests on %s: the API server has no metric %s", node, received)
		}
		all = append(all, requests...)
		// Ignore an error: kube-scheduler may have another port, or the cluster another scheduler. It has signed its certificate itself.
		out, err = p.RunLong(ctx, node, nil, "kubectl", "--kubeconfig", kubernetesengine.AdminConf, "--server=https://127.0.0.1:10259", "--insecure-skip-tls-verify", "get", "--raw", "/metrics")
		if err == nil {
			all = append(all, parseMetrics(string(out), sent)...)
		}
	}
	return player.SumRequests(all), nil
}

// nameResource returns the resource of a request as kubectl names it, such as jobs.batch/status, or a path such as /healthz.
func nameResource(labels map[string]string) string {
	name := labels["resource"]
	if labels["group"] != "" {
		name += "." + labels["group"]
	}
	if sub := strings.TrimPrefix(labels["subresource"], "/"); sub != "" {
		name += "/" + sub
	}
	return name
}

var label = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)

// parseMetrics returns the requests in metrics in the text format of Prometheus. name is the name of the metric, one of the
// constants received (of the API server) and sent (of its clients).
func parseMetrics(text, name string) []player.Request {
	var all []player.Request
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name+"{")
		end := strings.LastIndex(rest, "} ")
		if !ok || end < 0 {
			continue
		}
		count, err := strconv.ParseFloat(strings.TrimSpace(rest[end+2:]), 64)
		if err != nil {
			continue
		}
		labels := map[string]string{}
		for _, m := range label.FindAllStringSubmatch(rest[:end], -1) {
			labels[m[1]] = m[2]
		}
		r := player.Request{Program: "kube-apiserver", Verb: labels["verb"], Resource: nameResource(labels), Count: int64(count)}
		if name == sent {
			r = player.Request{Program: "kube-scheduler", Sent: true, Verb: labels["method"], Count: int64(count)}
		}
		all = append(all, r)
	}
	return player.SumRequests(all)
}
