package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// newLookCluster returns a cluster whose nodes are this computer, with stand-ins for systemctl, journalctl and df, which print the given texts.
func newLookCluster(t *testing.T, units, log, disks string) Cluster {
	folder := t.TempDir()
	for name, text := range map[string]string{"systemctl": units, "journalctl": log, "df": disks} {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file+".txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("#!/bin/sh\nexec cat "+file+".txt\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	return Cluster{Members: []Member{{Node: "a"}}, Run: func(ctx context.Context, _ string, _ io.Reader, argv ...string) ([]byte, error) {
		return exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	}}
}

// unitText returns what systemctl prints about a unit.
func unitText(name, active, sub string, more ...string) string {
	values := map[string]string{"NRestarts": "0", "ConditionResult": "yes", "ConditionTimestamp": "@1000", "ActiveEnterTimestamp": "@1000", "WantedBy": "multi-user.target", "LoadState": "loaded"}
	for _, m := range more {
		key, value, _ := strings.Cut(m, "=")
		values[key] = value
	}
	text := fmt.Sprintf("Id=%s\nActiveState=%s\nSubState=%s\n", name, active, sub)
	for key, value := range values {
		text += key + "=" + value + "\n"
	}
	return text + "\n"
}

func TestLook(t *testing.T) {
	const u = "u.service"
	for name, test := range map[string]struct{ units, log, disks, want string }{
		"works":             {unitText(u, "active", "running"), "not read", "", ""},
		"works, had failed": {unitText(u, "active", "running", "NRestarts=7"), "error: old", "", ""},
		"stopped":           {unitText(u, "inactive", "dead"), "error: old", "", "u.service is stopped"},
		"failed":            {unitText(u, "failed", "failed"), "start\nfatal: no key\nend\n", "", "u.service is failed: fatal: no key"},
		"dependency failed": {unitText(u, "inactive", "dead", "ConditionResult=no", "ConditionTimestamp="), "", "", "u.service is stopped"},
		"restarts":          {unitText(u, "activating", "auto-restart", "NRestarts=3"), "E1122 04:05:06.789012   1234 run.go:72] \"command failed\" err=\"no certificate\"\n", "", `u.service ends again and again: "command failed" err="no certificate"`},
		"restarted just now": {unitText(u, "active", "running", "NRestarts=3", "ActiveEnterTimestamp=@99999999999"), "only a line", "",
			"u.service ends again and again: only a line"},
		"starting":         {unitText(u, "activating", "start-pre"), "waits\n", "", "u.service is activating (start-pre): waits"},
		"other unit":       {unitText("v.service", "failed", "failed"), "", "", ""},
		"not installed":    {unitText(u, "inactive", "dead", "LoadState=not-found"), "", "", ""},
		"not wanted":       {unitText(u, "inactive", "dead", "WantedBy="), "", "", ""},
		"condition":        {unitText(u, "inactive", "dead", "ConditionResult=no"), "", "", ""},
		"full disk":        {unitText(u, "active", "running"), "", "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a 9000000 10 8999990 1% /\n/dev/b 9000000 8999990 10 100% /var/a b\n", "the disk of /var/a b is full"},
		"small disk":       {unitText(u, "active", "running"), "", "none 512 512 0 100% /run/credentials\n", ""},
		"terminal escapes": {unitText(u, "failed", "failed"), "a\x1b[2Jb\u202ec\u009b\n", "", `u.service is failed: a\u001b[2Jb\u202ec\u009b`},
		"endless output":   {unitText(u, "failed", "failed"), strings.Repeat(strings.Repeat("x", 5000)+"\n", 5000), "", "u.service is failed: " + strings.Repeat("x", maxLogLine) + "…"},
		"no output":        {"", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			faults, err := newLookCluster(t, test.units, test.log, test.disks).FindFaults(t.Context(), "a", u)
			var texts []string
			for _, f := range faults {
				texts = append(texts, f.String())
			}
			if got := strings.Join(texts, "; "); err != nil || strings.TrimSpace(got) != test.want {
				t.Errorf("%q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// Whether a unit works that has ended repeatedly, and runs at the moment.
func TestInspect(t *testing.T) {
	c := lookingEngine{newLookCluster(t, unitText("u.service", "active", "running", "NRestarts=3", "ActiveEnterTimestamp=@99999999999"), "", "")}
	for _, runs := range []bool{false, true} {
		if err := Inspect(t.Context(), c, "a", runs); (err == nil) != runs {
			t.Errorf("runs %v: %v", runs, err)
		}
	}
}

type lookingEngine struct{ Cluster }

func (e lookingEngine) FindFaults(ctx context.Context, node string) ([]Fault, error) {
	return e.Cluster.FindFaults(ctx, node, "u.service")
}

// Waiting for a node is useless if a program of the node or of the only controller does not work. At most six nodes are shown.
func TestDescribeFaults(t *testing.T) {
	unreachable := lookingEngine{Cluster{Members: []Member{{Node: "w"}}, Run: func(context.Context, string, io.Reader, ...string) ([]byte, error) {
		return nil, failure.On("w", errors.New("no route\nmore"))
	}}}
	failed := []Fault{{Unit: "u", State: "is failed", Lasts: true}}
	for name, test := range map[string]struct {
		controllers string
		faults      []NodeFaults
		want        string
		lasts       bool
	}{
		"none":              {"a", nil, "", false},
		"the node":          {"a b", []NodeFaults{{"w", failed}}, "w: u is failed", true},
		"the controller":    {"a", []NodeFaults{{"a", failed}}, "a: u is failed", true},
		"one of two":        {"a b", []NodeFaults{{"a", failed}}, "a: u is failed", false},
		"a disk":            {"a", []NodeFaults{{"w", []Fault{{State: "the disk of / is full"}}}}, "w: the disk of / is full", false},
		"cannot be reached": {"a", LookAll(t.Context(), unreachable, []string{"w"}), "w: no route", false},
		"many":              {"a", []NodeFaults{{"w", failed}, {"w2", failed}, {"w3", failed}, {"w4", failed}, {"w5", failed}, {"w6", failed}, {"w7", failed}}, "w: u is failed; w2: u is failed; w3: u is failed; w4: u is failed; w5: u is failed; w6: u is failed; and 1 more", true},
	} {
		var c Cluster
		for _, node := range strings.Fields(test.controllers) {
			c.Members = append(c.Members, Member{Node: node, Engine: nixeval.Engine{OneByOne: true}})
		}
		if text, lasts := DescribeFaults(lookingEngine{c}, []string{"w"}, test.faults); text != test.want || lasts != test.lasts {
			t.Errorf("%s: %q, %v", name, text, lasts)
		}
	}
}
