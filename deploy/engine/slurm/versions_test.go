package slurm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

func TestReleases(t *testing.T) {
	for version, want := range map[string]string{"23.11.1": "23.11", "24.05.0": "24.05", "24.11.5": "24.11", "25.05.1-1": "25.05", "26.05.1.1": "26.05", "23.02.7": "", "22.05.8": "", "24.08": "", "": ""} {
		r := parseRelease(version)
		if (r != 0) != (want != "") || r != 0 && r.String() != want {
			t.Errorf("%q: %v, want %q", version, r, want)
		}
	}
	if a, b := parseRelease("24.11.5"), parseRelease("25.05.0"); b != a+1 {
		t.Errorf("25.05 follows 24.11, and not by %d", b-a)
	}
}

// The running slurmctld and slurmd are 24.11.5.
func TestVersions(t *testing.T) {
	all := []string{"head", "c-1", "c-2"}
	for name, test := range map[string]struct {
		head, compute string // the versions in the hive
		nodes         []string
		older         string // the version that c-2 runs, if it is another one
		want          string // the changes, or the beginning of the error
	}{
		"no change":                    {"24.11.5", "24.11.5", all, "", "map[]"},
		"all of them":                  {"25.05.2", "25.05.2", all, "", "map[c-1:{24.11.5 25.05.2} c-2:{24.11.5 25.05.2} head:{24.11.5 25.05.2}]"},
		"two releases":                 {"25.11.0", "25.11.0", all, "", "map[c-1:{24.11.5 25.11.0} c-2:{24.11.5 25.11.0} head:{24.11.5 25.11.0}]"},
		"three releases":               {"26.05.0", "26.05.0", all, "", "map[c-1:{24.11.5 26.05.0} c-2:{24.11.5 26.05.0} head:{24.11.5 26.05.0}]"},
		"four releases":                {"26.11.0", "26.11.0", all, "", "slurm: nixbench.slurm.package of head is release 26.11, and slurmctld of head has release 24.11: this slurmctld does not support releases before 25.05"},
		"back":                         {"24.05.1", "24.05.1", all, "", "slurm: nixbench.slurm.package of head is release 24.05, and slurmctld of head has release 24.11: slurmctld does not support newer releases"},
		"back within the release":      {"24.11.1", "24.11.5", all, "", "map[head:{24.11.5 24.11.1}]"},
		"the controller alone":         {"25.05.2", "25.05.2", []string{"head"}, "", "map[head:{24.11.5 25.05.2}]"},
		"compute nodes alone":          {"25.05.2", "25.05.2", all[1:], "", "slurm: nixbench.slurm.package of head is release 24.11, and slurmd of c-1 has release 25.05: slurmctld does not support newer releases"},
		"a node that stays too old":    {"25.11.2", "25.11.2", all[:2], "23.11.4", "slurm: nixbench.slurm.package of head is release 25.11, and slurmd of c-2 has release 23.11: this slurmctld does not support releases before 24.05"},
		"the old node is upgraded too": {"25.11.2", "25.11.2", all, "23.11.4", "map[c-1:{24.11.5 25.11.2} c-2:{23.11.4 25.11.2} head:{24.11.5 25.11.2}]"},
	} {
		c := newController(t, "c-1", "c-2")
		if test.older != "" {
			c.nodes["c-2"].version = test.older
		}
		e := c.engine("c-1", "c-2")
		for i, m := range e.Cluster.Members {
			version := test.compute
			if m.Role == Controller {
				version = test.head
			}
			e.Cluster.Members[i].Settings = []byte(`{"version": "` + version + `"}`)
		}
		changes, err := e.Versions(t.Context(), test.nodes)
		switch {
		case err == nil && fmtChanges(changes) != test.want:
			t.Errorf("%s: %s, want %s", name, fmtChanges(changes), test.want)
		case err != nil && (!strings.HasPrefix(err.Error(), test.want) || failure.Hint(err) == "" || failure.KindOf(err) != failure.Activation):
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

func fmtChanges(changes map[string]engine.Change) string {
	return fmt.Sprint(changes)
}

func TestSupportedReleases(t *testing.T) {
	for version, want := range map[string]string{"25.05.1": "23.11", "26.05.0": "24.11", "24.05.1": "23.05"} {
		if got := parseRelease(version).oldestSupported().String(); got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}

// slurmdbd is upgraded before slurmctld.
func TestVersionsOfSlurmdbd(t *testing.T) {
	for name, test := range map[string]struct {
		versions map[string]string // in the hive, by role
		nodes    []string
		want     string
	}{
		"all":               {map[string]string{Accounting: "25.05.2", Controller: "25.05.2", Compute: "25.05.2"}, []string{"db", "head", "c-1"}, "map[c-1:{24.11.5 25.05.2} db:{24.11.5 25.05.2} head:{24.11.5 25.05.2}]"},
		"slurmdbd alone":    {map[string]string{Accounting: "25.05.2"}, []string{"db"}, "map[db:{24.11.5 25.05.2}]"},
		"slurmctld alone":   {map[string]string{Controller: "25.05.2"}, []string{"head"}, "slurm: nixbench.slurm.package of db is release 24.11, and slurmctld of head has release 25.05: slurmdbd does not support newer releases"},
		"slurmdbd too new":  {map[string]string{Accounting: "26.11.0"}, []string{"db"}, "slurm: nixbench.slurm.package of db is release 26.11, and slurmdbd of db has release 24.11: this slurmdbd does not support releases before"},
		"slurmdbd too old":  {map[string]string{Accounting: "24.05.3"}, []string{"db"}, "slurm: nixbench.slurm.package of db is release 24.05, and slurmdbd of db has release 24.11: slurmdbd does not support newer releases"},
		"slurmdbd is added": {map[string]string{Accounting: "24.05.3"}, []string{"db"}, "slurm: nixbench.slurm.package of db is release 24.05, and slurmctld of head has release 24.11: slurmdbd does not support newer releases"},
	} {
		c := newController(t, "c-1")
		c.accounting = name != "slurmdbd is added"
		e := c.engine("c-1")
		addAccounting(e, "db")
		for i, m := range e.Cluster.Members {
			version := test.versions[m.Role]
			if version == "" {
				version = "24.11.5"
			}
			e.Cluster.Members[i].Settings = []byte(`{"version": "` + version + `"}`)
		}
		changes, err := e.Versions(t.Context(), test.nodes)
		if err == nil && fmtChanges(changes) != test.want || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %s, %v, want %s", name, fmtChanges(changes), err, test.want)
		}
	}
}

// A controller that does not answer may be repaired by the run.
func TestVersionsWithoutAnswer(t *testing.T) {
	c := newController(t, "c-1")
	c.fails["scontrol show config"] = "Unable to contact slurm controller (connect failure)"
	if changes, err := c.engine("c-1").Versions(t.Context(), []string{"head"}); len(changes) > 0 || err != nil {
		t.Errorf("%v, %v", changes, err)
	}
}
