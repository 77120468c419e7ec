package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/engine"
)

func TestCertificatesNote(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	row := func(node, name string, ends time.Duration) deploy.Status {
		return deploy.Status{Node: node, Certificates: []engine.Certificate{{Name: name, Begins: now.AddDate(0, -1, 0), Ends: now.Add(ends)}}}
	}
	const day = 24 * time.Hour
	for want, rows := range map[string][]deploy.Status{
		"": {{Node: "web"}},
		"certificates: apiserver.crt of cp-1 ends first, on 2027-01-06 (made on 2026-04-01)": {row("w-1", "kubelet", 300*day), row("cp-1", "apiserver.crt", 250*day)},
		"in 10d; on that node: kubeadm certs renew all":                                      {row("cp-1", "apiserver.crt", 10*day+time.Hour)},
		"it has ended": {row("cp-1", "apiserver.crt", -day)},
	} {
		if got := certificatesNote(rows, now); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
