package kubernetes

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/playertest"
	"github.com/nixbench/nixbench/bench/workload"
)

func newFakeWithClient(t *testing.T) *fakeCluster {
	f := newFake(t)
	f.client = "client-1"
	return f
}

func TestContractOfClient(t *testing.T) {
	playertest.Run(t, func(t *testing.T) player.Player { return newFakeWithClient(t).player(Options{}) })
}

// With a client, all commands of a workload but those that prepare it run there, with a token in a kubeconfig that is on no command line.
func TestClient(t *testing.T) {
	f := newFakeWithClient(t)
	p := f.player(Options{})
	jobs, err := workload.Prepare([]workload.Job{{ID: "a"}, {ID: "b", Submit: 0.1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := playertest.Play(t.Context(), p, jobs); err != nil {
		t.Fatal(err)
	}
	begun := false
	for _, call := range f.calls {
		if strings.Contains(call, "secret") {
			t.Errorf("the token is on a command line: %s", call)
		}
		begun = begun || strings.HasPrefix(call, "client-1: tail ")
		if begun && strings.Contains(call, ": date") {
			break // after the workload
		}
		if node, _, _ := strings.Cut(call, ":"); begun && node != "client-1" {
			t.Errorf("during the workload: %s", call)
		}
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server    string `json:"server"`
				Authority string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := json.Unmarshal([]byte(f.access), &config); err != nil || !begun || config.Clusters[0].Cluster.Server != "https://192.168.222.2:6443" || config.Clusters[0].Cluster.Authority != "Q0E=" {
		t.Errorf("%s, %v", f.access, err)
	}
	if got, want := p.Place(), (player.Place{Commands: "client-1", Scheduler: "cp-1"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A service account that cannot be created, a kubeconfig without an address, and a full disk end Play.
func TestClientErrors(t *testing.T) {
	for want, program := range map[string]string{"create the service account of the client": "kubectl 5", "create the token of the client": "kubectl 6", "read the address of the API": "kubectl 7", "write the kubeconfig": "sh 1"} {
		f := newFakeWithClient(t)
		name, number, _ := strings.Cut(program, " ")
		f.answer[name] = func(n int) (string, error) {
			switch {
			case n != int(number[0]-'0'):
				return "", nil
			case want == "read the address of the API":
				return "\n", nil
			}
			return "", errLost
		}
		if _, err := play(t, f, Options{}, []workload.Job{{ID: "a"}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
