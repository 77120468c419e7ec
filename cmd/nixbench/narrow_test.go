package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/packages"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/stages"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
)

// display is a writer that is as wide as a terminal of 80 columns.
type display struct{ strings.Builder }

func (*display) Columns() int { return 80 }

func (s *display) check(t *testing.T, want string) {
	t.Helper()
	for line := range strings.Lines(s.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), s.String()); diff != "" {
		t.Error(diff)
	}
}

// demoStatus is the state of a cluster such as the demo's.
func demoStatus() (rows []inspect.Status) {
	now := time.Date(2026, 11, 20, 8, 30, 0, 0, time.UTC)
	busy := 0.4
	for i, name := range []string{"control-plane-1", "worker-1", "worker-2"} {
		rows = append(rows, inspect.Status{
			Node: name, Role: strings.TrimRight(name, "-12"), Address: fmt.Sprintf("192.168.222.%d", 102+i), System: inspect.AsDeployed, State: "running", Boots: 12, Generation: 12,
			Uptime: 7800, Time: now, LastRun: &inspect.LastRun{Outcome: "committed", Time: now.Add(-65 * time.Minute)},
			Member: &engine.Status{Ready: true, Version: "1.34.4"}, Machine: &machine.Status{State: "running"},
			Figures: &inspect.Figures{Processors: 4, ProcessorsUsed: &busy, Memory: 4 << 30, MemoryUsed: 1 << 30, Disk: 20 << 30, DiskUsed: 5 << 30},
		})
	}
	return rows
}

func TestNarrowStatus(t *testing.T) {
	rows := demoStatus()
	rows[2].State, rows[2].FailedUnits = "degraded", []string{"first-of-three.service", "second-of-three.service", "third-of-three.service"}
	var s display
	writeStatus(&s, rows, false)
	s.check(t, `
NODE             SYSTEM       UNITS     MEMBER  VERSION  LAST RUN       MACHINE
control-plane-1  as deployed  ok        Ready   1.34.4   done 1h5m ago  running
worker-1         as deployed  ok        Ready   1.34.4   done 1h5m ago  running
worker-2         as deployed  3 failed  Ready   1.34.4   done 1h5m ago  running

worker-2: failed units: first-of-three.service, second-of-three.service,
  third-of-three.service
`)
	s.Reset()
	writeStatus(&s, rows[:2], true)
	s.check(t, `
NODE             SYSTEM       UNITS  MEMBER  VERSION  LAST RUN       MACHINE
control-plane-1  as deployed  ok     Ready   1.34.4   done 1h5m ago  running
    ROLE control-plane  ADDRESS 192.168.222.102  GENERATION 12  UPTIME 2h10m
    PROCESSORS 0.4/4  MEMORY 1.0 GiB/4.0 GiB  DISK 5.0 GiB/20.0 GiB
worker-1         as deployed  ok     Ready   1.34.4   done 1h5m ago  running
    ROLE worker  ADDRESS 192.168.222.103  GENERATION 12  UPTIME 2h10m
    PROCESSORS 0.4/4  MEMORY 1.0 GiB/4.0 GiB  DISK 5.0 GiB/20.0 GiB
`)
}

func TestNarrowPlan(t *testing.T) {
	no := false
	var files packages.Files
	for i := range 14 {
		files.Changed = append(files.Changed, fmt.Sprintf("service-%d.service", i))
	}
	var previews []stages.Preview
	for i := range 3 {
		previews = append(previews, stages.Preview{
			Node: fmt.Sprintf("control-plane-%d", i+1), Action: plan.WouldFirst, Copy: &stages.CopyPreview{Paths: 312, Bytes: 1 << 30}, Reboot: &no, Wave: i/2 + 1, Drained: true,
			Keys:    &stages.KeysPreview{Upload: []string{"a", "b"}},
			Machine: &stages.MachinePreview{Action: changes.Create, Hypervisor: "default", Address: netip.MustParseAddr("192.168.222.102")},
		})
	}
	for i := range 7 {
		previews = append(previews, stages.Preview{
			Node: fmt.Sprintf("a-long-name-of-a-worker-%d", i+1), Action: plan.WouldSwitch, Wave: 3, Drained: true, Version: &engine.Change{From: "1.34.3", To: "1.34.4"},
			Diff: &packages.SystemDiff{Bytes: 2 << 20, Units: &files},
		})
	}
	var s display
	writePreviews(&s, append(previews[:3:3], previews[8:]...))
	s.check(t, `
NODE                       WOULD             COPY                REBOOT
control-plane-1            first deployment  312 paths, 1.0 GiB  -
    KEYS upload 2  MACHINE create on default, 192.168.222.102
control-plane-2            first deployment  312 paths, 1.0 GiB  -
    KEYS upload 2  MACHINE create on default, 192.168.222.102
control-plane-3            first deployment  312 paths, 1.0 GiB  -
    KEYS upload 2  MACHINE create on default, 192.168.222.102
a-long-name-of-a-worker-6  switch            ?                   ?
    VERSION 1.34.3 → 1.34.4
a-long-name-of-a-worker-7  switch            ?                   ?
    VERSION 1.34.3 → 1.34.4

a-long-name-of-a-worker-6, a-long-name-of-a-worker-7: closure +2.0 MiB
  units: ~ service-0.service, ~ service-1.service, ~ service-2.service,
    ~ service-3.service, ~ service-4.service, ~ service-5.service,
    ~ service-6.service, ~ service-7.service, ~ service-8.service,
    ~ service-9.service, ~ service-10.service, ~ service-11.service, and 2 more

order:
  1. control-plane-1 (drained), control-plane-2 (drained)
  2. control-plane-3 (drained)
  3. a-long-name-of-a-worker-6 (drained), a-long-name-of-a-worker-7 (drained)

nodes: 3 with a new machine, 3 first deployment, 2 switch
`)
}

func TestNarrowRuns(t *testing.T) {
	began := time.Date(2026, 11, 20, 8, 30, 0, 0, time.UTC)
	ended := began.Add(83*time.Second + 400*time.Millisecond)
	var s display
	writeRuns(&s, []runs.Summary{
		{ID: "20261120T083000-apply", Status: runs.StatusFailed, Started: began, Ended: &ended, Nodes: map[state.Outcome]int{state.Unchanged: 112, state.Switched: 12, state.RolledBack: 3, state.Failed: 2, state.Skipped: 2}},
		{ID: "20261120T073000-upload-keys", Status: runs.StatusDone, Started: began, Ended: &ended},
	})
	s.check(t, `
RUN                          STATUS  TOOK
20261120T083000-apply        failed  1m23.4s
    NODES 2 failed, 3 rolled-back, 2 skipped, 12 switched, 112 unchanged
20261120T073000-upload-keys  done    1m23.4s
`)
}

func TestNarrowGenerations(t *testing.T) {
	date := time.Date(2026, 11, 20, 8, 30, 0, 0, time.Local)
	var s display
	writeGenerations(&s, []generation{
		{"control-plane-1", activate.Generation{Number: 12, Time: date, Version: "26.05.20261118.0a1b2c3", Current: true, Booted: true, Default: true, Path: "/nix/store/0123456789abcdef0123456789abcdef-nixos-system-control-plane-1"}},
		{"control-plane-1", activate.Generation{Number: 11, Time: date, Version: "26.05.20261107.4d5e6f7"}},
	})
	s.check(t, `
NODE             GENERATION  DATE              VERSION
control-plane-1  12          2026-11-20 08:30  26.05.20261118.0a1b2c3
    current, booted, default
control-plane-1  11          2026-11-20 08:30  26.05.20261107.4d5e6f7
`)
}
