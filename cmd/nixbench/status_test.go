package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/inspect"
)

func TestCertificateNotes(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	row := func(node, name string, ends time.Duration) inspect.Status {
		return inspect.Status{Node: node, Certificates: []engine.Certificate{{Name: name, Begins: now.AddDate(0, -1, 0), Ends: now.Add(ends), Remedy: "renew it"}}}
	}
	authority := func(node string, ends time.Duration) inspect.Status {
		s := row(node, "ca.crt", ends)
		s.Certificates[0].Authority = true
		return s
	}
	renewed := func(ends, due time.Duration) inspect.Status {
		s := row("cp-1", "etcd/peer.crt", ends)
		s.Certificates[0].Renewer, s.Certificates[0].Due = "renewal.service", now.Add(due)
		return s
	}
	for want, rows := range map[string][]inspect.Status{
		"": {{Node: "web"}},
		"certificates: apiserver.crt of cp-1 ends first, on 2027-01-06 (made on 2026-04-01)":                {row("w-1", "kubelet", 300*day), row("cp-1", "apiserver.crt", 250*day)},
		"in 10d; nothing renews it: renew it":                                                               {row("cp-1", "apiserver.crt", 10*day+time.Hour)},
		"it has ended; nothing renews it":                                                                   {row("cp-1", "apiserver.crt", -day)},
		"certificates: etcd/peer.crt of cp-1 ends first, on 2026-05-21, in 20d (made on 2026-04-01)":        {renewed(20*day, -2*day)},
		"in 20d; it should have been renewed since 2026-04-27: on that node, journalctl -u renewal.service": {renewed(20*day, -4*day)},
		"on 2026-07-20; it should have been renewed since":                                                  {renewed(80*day, -4*day)},
		// Certificates that an authority signs end earlier. All nodes have the same authorities.
		"ends first, on 2026-06-30 (made on 2026-04-01)\nauthorities: ca.crt ends on 2027-02-25, and the cluster stops working then; nothing renews it: renew it": {
			row("cp-1", "apiserver.crt", 60*day), authority("cp-1", 300*day), authority("cp-2", 300*day), authority("cp-3", 400*day)},
	} {
		if got := strings.Join(describeCertificates(rows, now), "\n"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
