package kubernetes

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/failure"
)

// A word of these tests is `NODE=KUBELET→WISH`, without KUBELET for nodes that are not registered; those in parentheses are not
// deployed.
func (c *cluster) versions(text string) (*Engine, []string) {
	c.nodes = map[string]object{}
	var names, deployed []string
	desired := map[string]string{}
	for word := range strings.FieldsSeq(text) {
		bare := strings.Trim(word, "()")
		name, rest, _ := strings.Cut(bare, "=")
		kubelet, want, _ := strings.Cut(rest, "→")
		if names = append(names, name); bare == word {
			deployed = append(deployed, name)
		}
		if kubelet != "" {
			n := node(true)
			n["kubelet"] = "v" + kubelet
			c.nodes[name] = n
		}
		desired[name] = want
	}
	e := c.engine(names...)
	for i, m := range e.Cluster.Members {
		e.Cluster.Members[i].Settings, _ = json.Marshal(object{"version": desired[m.Node], "port": 6443})
	}
	return e, deployed
}

func TestVersions(t *testing.T) {
	for name, c := range map[string]struct {
		cluster string
		changes string // `NODE=FROM→TO`
		refused string
		way     string
	}{
		"nothing to do":                          {"cp-1=1.34.3→1.34.3 w-1=1.34.3→1.34.3", "", "", ""},
		"a patch":                                {"cp-1=1.34.3→1.34.4 w-1=1.34.3→1.34.4 w-2=→1.34.4", "cp-1=1.34.3→1.34.4 w-1=1.34.3→1.34.4", "", ""},
		"the next":                               {"cp-1=1.34.3→1.35.0 w-1=1.34.3→1.35.0", "cp-1=1.34.3→1.35.0 w-1=1.34.3→1.35.0", "", ""},
		"the second step":                        {"cp-1=1.35.3→1.36.2 w-1=1.35.3→1.36.2", "cp-1=1.35.3→1.36.2 w-1=1.35.3→1.36.2", "", ""},
		"workers left out of both steps":         {"cp-1=1.35.3→1.36.2 (w-1=1.34.4→1.34.4)", "cp-1=1.35.3→1.36.2", "", ""},
		"workers that follow both steps":         {"cp-1=1.36.2→1.36.2 w-1=1.34.4→1.36.2", "w-1=1.34.4→1.36.2", "", ""},
		"cut off in between":                     {"cp-1=1.35.0→1.35.0 cp-2=1.34.3→1.35.0", "cp-2=1.34.3→1.35.0", "", ""},
		"a worker goes back":                     {"cp-1=1.35.0→1.35.0 w-1=1.35.0→1.33.1", "w-1=1.35.0→1.33.1", "", ""},
		"no version wished":                      {"cp-1=1.34.3→ w-1=1.34.3→", "", "", ""},
		"a new worker, newer within the release": {"(cp-1=1.34.3→1.34.4) w-9=→1.34.4", "", "", ""},

		"a jump": {"cp-1=1.34.3→1.36.0", "cp-1=1.34.3→1.36.0",
			"kubernetes: the control plane runs 1.34.3, and nixbench.kubernetes.version of cp-1 is 1.36.0: kubeadm goes from one minor release to the next only",
			"set nixbench.kubernetes.package to release 1.35 and apply; then to the next minor release"},
		"a long jump": {"cp-1=1.34.3→1.37.1", "cp-1=1.34.3→1.37.1", "one minor release to the next",
			"release 1.35 and apply"},
		"a jump over one that is not through": {"cp-1=1.35.0→1.36.0 cp-2=1.34.3→1.36.0", "cp-1=1.35.0→1.36.0 cp-2=1.34.3→1.36.0", "runs 1.34.3, and", "release 1.35 and apply"},
		"back": {"cp-1=1.34.4→1.34.3", "cp-1=1.34.4→1.34.3",
			"kubernetes: the control plane runs 1.34.4, and nixbench.kubernetes.version of cp-1 is 1.34.3: a control plane cannot go back",
			"set nixbench.kubernetes.package to release 1.34.4 or later"},
		"back, half-way": {"(cp-1=1.35.0→1.34.3) cp-2=1.34.2→1.34.3", "cp-2=1.34.2→1.34.3", "runs 1.35.0, and", "1.35.0 or later"},
		"a worker first": {"(cp-1=1.34.3→1.35.0) w-1=1.34.3→1.35.0", "w-1=1.34.3→1.35.0",
			"kubernetes: nixbench.kubernetes.version of w-1 is 1.35.0, and the API of the control plane 1.34.3: a kubelet must not be newer",
			"apply to the control plane first"},
		"a new worker first": {"(cp-1=1.34.3→1.35.0) w-9=→1.35.0", "", "a kubelet must not be newer", "to all nodes at once"},
		"one control plane and the workers": {"cp-1=1.34.3→1.35.0 (cp-2=1.34.3→1.35.0) w-1=1.34.3→1.35.0",
			"cp-1=1.34.3→1.35.0 w-1=1.34.3→1.35.0", "a kubelet must not be newer", "control plane first"},
		"a worker stays too far behind": {"cp-1=1.34.3→1.35.0 (w-1=1.31.9→1.35.0)", "cp-1=1.34.3→1.35.0",
			"kubernetes: nixbench.kubernetes.version of the control plane is 1.35.0, and the kubelet of w-1 is, or would be, 1.31.9: a kubelet must not be more than three minor releases older",
			"set nixbench.kubernetes.package of w-1 to release 1.32 or later"},
		"a worker would be too old": {"cp-1=1.35.0→1.35.0 w-1=1.34.3→1.31.9", "w-1=1.34.3→1.31.9", "must not be more than three minor releases older",
			"set nixbench.kubernetes.package of w-1 to release 1.32 or later"},
	} {
		f := &cluster{t: t}
		e, deployed := f.versions(c.cluster)
		changes, err := e.Versions(t.Context(), deployed)
		var got []string
		for _, n := range slices.Sorted(maps.Keys(changes)) {
			got = append(got, n+"="+changes[n].From+"→"+changes[n].To)
		}
		if strings.Join(got, " ") != c.changes {
			t.Errorf("%s: changes %q, want %q", name, got, c.changes)
		}
		switch {
		case c.refused == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.refused != "" && (err == nil || failure.KindOf(err) != failure.Activation || !strings.Contains(err.Error(), c.refused) || !strings.Contains(failure.Hint(err), c.way)):
			t.Errorf("%s: %v, %s", name, err, failure.Hint(err))
		}
	}
}

// Only the nodes are listed.
func TestVersionsAreCheap(t *testing.T) {
	c := &cluster{t: t}
	e, nodes := c.versions("cp-1=1.34.3→1.34.3 w-1=1.34.3→1.34.3")
	if _, err := e.Versions(t.Context(), nodes); err != nil || len(c.ran) != 1 {
		t.Errorf("%v, %q", err, c.ran)
	}
	c = &cluster{t: t, noCluster: true}
	e, nodes = c.versions("cp-1=→1.34.3")
	if changes, err := e.Versions(t.Context(), nodes); err != nil || changes != nil || len(c.ran) != 1 {
		t.Errorf("%v, %v, %q", changes, err, c.ran)
	}
	e.Cluster.Members[0].Settings = []byte(`{"version": "the newest"}`)
	c.noCluster = false
	if _, err := e.Versions(t.Context(), nodes); err == nil || !strings.Contains(err.Error(), `cp-1: deployment.engine.settings.version: "the newest" is no version`) {
		t.Error(err)
	}
}
