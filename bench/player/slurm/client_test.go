package slurm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/playertest"
	"github.com/nixbench/nixbench/bench/workload"
)

func newFakeWithClient(t *testing.T) *fakeCluster {
	f := newFake(t)
	f.client = "login"
	return f
}

// The events have the times of this machine, although the clocks of the client and of the controller differ.
func TestContractOfClient(t *testing.T) {
	playertest.Run(t, func(t *testing.T) player.Player { return newFakeWithClient(t).player() })
}

// With a client, sbatch runs there, when SLURM's commands work there, and the log is read on the controller.
func TestClient(t *testing.T) {
	f := newFakeWithClient(t)
	f.answer["scontrol"] = func(n int) (string, error) {
		if n == 2 || n == 3 {
			return "", errors.New("scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error")
		}
		return "", nil
	}
	p := f.player()
	jobs, err := workload.Prepare([]workload.Job{{ID: "a"}, {ID: "refused", Queue: "missing"}})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	events, _, err := playertest.Play(t.Context(), p, jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Time.Before(begin) || e.Time.After(time.Now()) {
			t.Errorf("%s of %s at %v", e.Kind, e.Job, e.Time.Sub(begin))
		}
	}
	if !slices.Contains(f.calls, "login: bash -s") || slices.Contains(f.calls, "head: bash -s") || f.count["scontrol"] != 4 {
		t.Errorf("commands: %q", f.calls)
	}
	if got, want := p.Place(), (player.Place{Commands: "login", Scheduler: "head"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A client that has no configuration is an error that names the daemon to look at.
func TestClientWithoutConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeWithClient(t)
		f.answer["scontrol"] = func(n int) (string, error) { return "", errors.New("connection refused") }
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the trial was stopped"))
		defer cancel()
		if err := f.player().waitForClient(ctx); err == nil || err.Error() != "the trial was stopped" {
			t.Error(err)
		}
		if err := f.player().waitForClient(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "within 30s: connection refused; journalctl -u sackd on login shows why") {
			t.Error(err)
		}
	})
}

// The file has what sdiag of SLURM 24.11 printed. Its statistics by user are left out.
func TestRequests(t *testing.T) {
	f := newFake(t)
	got, err := f.player().Requests(t.Context())
	if err != nil || len(got) != 9 || slices.Contains(f.calls, "head: sdiag --reset") {
		t.Errorf("%+v, %v", got, err)
	}
	for _, want := range []player.Request{
		{Program: "slurmctld", Verb: "REQUEST_COMPLETE_BATCH_SCRIPT", Count: 6}, {Program: "slurmctld", Verb: "REQUEST_STATS_INFO", Count: 1},
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%+v is missing in %+v", want, got)
		}
	}
	for text, answer := range map[string]error{"connection lost": errors.New("connection lost"), "printed no statistics": nil} {
		f.answer["sdiag"] = func(int) (string, error) { return "Jobs submitted: 20\n", answer }
		if _, err := f.player().Requests(t.Context()); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
