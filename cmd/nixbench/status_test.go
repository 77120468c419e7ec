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
		"certificates: apiserver.crt of cp-1 ends on 2026-05-21; nothing renews it: renew it":           {row("w-1", "kubelet", 25*day), row("cp-1", "apiserver.crt", 20*day)},
		"apiserver.crt of cp-1 ends on 2026-04-30; nothing renews it":                                   {row("cp-1", "apiserver.crt", -day)},
		"on 2026-05-21; its renewal was due on 2026-04-27: on that node, journalctl -u renewal.service": {renewed(20*day, -4*day)},
		"on 2026-07-20; its renewal was due on":                                                         {renewed(80*day, -4*day)},
		// Certificates that an authority signs end earlier. All nodes have the same authorities.
		"authorities: ca.crt ends on 2027-02-25, and the cluster stops working then; nothing renews it: renew it": {
			row("cp-1", "apiserver.crt", 60*day), authority("cp-1", 300*day), authority("cp-2", 300*day), authority("cp-3", 400*day)},
	} {
		if got := strings.Join(describeCertificates(rows, now), "\n"); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	// No user has to act yet: the certificates end late, or are renewed in time.
	for _, rows := range [][]inspect.Status{
		{{Node: "web"}},
		{row("w-1", "kubelet", 300*day), row("cp-1", "apiserver.crt", 250*day)},
		{renewed(20*day, -2*day)},
		{authority("cp-1", 400*day)},
	} {
		if got := describeCertificates(rows, now); len(got) > 0 {
			t.Errorf("notes without a need to act: %q", got)
		}
	}
}

func TestStatusTable(t *testing.T) {
	busy := 0.42
	rows := []inspect.Status{
		{Node: "cp-1", Role: "cp", Address: "10.0.0.2", System: inspect.AsDeployed, State: "running", Boots: 3, Generation: 3, Reboot: true,
			Member:  &engine.Status{Ready: true, Cordoned: true, Version: "1.34.4"},
			Figures: &inspect.Figures{Processors: 4, ProcessorsUsed: &busy, Memory: 4 << 30, MemoryUsed: 1 << 30, Disk: 20 << 30, DiskUsed: 5 << 30}},
		{Node: "web", System: inspect.Unreachable},
	}
	var out strings.Builder
	writeStatus(&out, rows, true, "a note")
	want := `NODE  SYSTEM       UNITS  MEMBER           VERSION  LAST RUN  ROLE  ADDRESS   GENERATION  UPTIME  PROCESSORS  MEMORY           DISK
cp-1  as deployed  ok     Ready, cordoned  1.34.4   -         cp    10.0.0.2  3           0s      0.4/4       1.0 GiB/4.0 GiB  5.0 GiB/20.0 GiB
web   unreachable  -      -                -        -         -     -         -           -       -           -                -

cp-1: the next boot uses another kernel: nixbench reboot --if-needed
a note
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	writeStatus(&out, rows[1:], false)
	if want := "NODE  SYSTEM       UNITS  LAST RUN\nweb   unreachable  -      -\n"; out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestLastRun(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for want, run := range map[string]*inspect.LastRun{
		"":                              nil,
		"done 5m ago":                   {Outcome: "committed", Time: now.Add(-5 * time.Minute)},
		"still running, started 5m ago": {Alive: true, Time: now.Add(-5 * time.Minute)},
		"failed 5m ago":                 {Time: now.Add(-5 * time.Minute)},
	} {
		if got := formatLastRun(inspect.Status{LastRun: run, Time: now}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
