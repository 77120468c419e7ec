package slurm

import (
	"strings"
	"testing"
)

// The node with slurmdbd is a member once slurmctld uses it.
func TestAccountingMember(t *testing.T) {
	for _, used := range []bool{false, true} {
		c := newController(t, "c-1")
		c.accounting = used
		e := c.engine("c-1")
		addAccounting(e, "db")
		members, err := e.Members(t.Context())
		if _, isMember := members["db"]; err != nil || isMember != used || isMember && !members["db"].OneByOne {
			t.Errorf("used %v: %+v, %v", used, members, err)
		}
	}
}

// The node with slurmdbd is ready when its unit runs, also without a controller.
func TestAccountingReady(t *testing.T) {
	c := newController(t, "c-1")
	c.fails["scontrol"] = "Unable to contact slurm controller (connect failure)"
	e := c.engine("c-1")
	addAccounting(e, "db")
	if err := e.checkReady(t.Context(), "db"); err != nil {
		t.Error(err)
	}
	c.fails["db: sh -c "] = "no such unit"
	if err := e.checkReady(t.Context(), "db"); err == nil {
		t.Error("a node without a running slurmdbd is ready")
	}
}

func TestAccountingCondition(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *controller)
		want   string
	}{
		"well":            {func(*controller) {}, ""},
		"no slurmdbd":     {func(c *controller) { c.fails["sacctmgr"] = "Connection refused" }, "slurmdbd answers: head: sacctmgr: exit status 1: Connection refused"},
		"not registered":  {func(c *controller) { c.accounts = "" }, "slurmdbd answers: slurmctld of the cluster bench is not registered with slurmdbd"},
		"another cluster": {func(c *controller) { c.accounts = "bench2|6817\n" }, "slurmdbd answers: slurmctld of the cluster bench is not registered with slurmdbd"},
		"without a port":  {func(c *controller) { c.accounts = "bench|0\n" }, "slurmdbd answers: slurmctld of the cluster bench is not registered with slurmdbd"},
		"not used":        {func(c *controller) { c.accounting = false }, "slurmdbd answers: slurmctld runs without accounting: AccountingStorageType is (null)"},
	} {
		c := newController(t, "c-1")
		c.accounting = true
		test.change(c)
		for _, shared := range []bool{false, true} {
			e := c.engine("c-1")
			if shared {
				e.Cluster.Members[0].Settings = []byte(`{"accounting": true}`)
			} else {
				addAccounting(e, "db")
			}
			if got := failing(t.Context(), e, false); got != test.want {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		}
	}
	c := newController(t, "c-1")
	if got := failing(t.Context(), c.engine("c-1"), false); got != "" || c.called("sacctmgr") {
		t.Errorf("a cluster without accounting: %q", strings.Join(c.calls, "\n"))
	}
}

// A recreated node with slurmdbd has a new database, in which only a restarted slurmctld registers. A restart that changes nothing is left out.
func TestAdmitAccounting(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *controller)
		want   bool
		fails  bool
	}{
		"a new database":  {func(c *controller) { c.accounts = "" }, true, false},
		"an old database": {func(*controller) {}, false, false},
		"not used yet":    {func(c *controller) { c.accounting = false }, false, false},
		"no cluster yet":  {func(c *controller) { c.fails["scontrol"] = "sudo: scontrol: command not found" }, false, false},
		"no restart": {func(c *controller) {
			c.accounts = ""
			c.fails["systemctl restart slurmctld"] = "Job for slurmctld.service failed"
		}, true, true},
	} {
		c := newController(t, "c-1")
		c.accounting = true
		test.change(c)
		e := c.engine("c-1")
		addAccounting(e, "db")
		err := e.Admit(t.Context(), "db")
		if restarted := c.called("head: sh -c " + registerScript + " /var/spool/slurmctld"); restarted != test.want || (err != nil) != test.fails {
			t.Errorf("%s: restarted %v, %v", name, restarted, err)
		}
	}
}
