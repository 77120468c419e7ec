package kubernetes

import (
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/engine"
)

func TestCheckObjectCondition(t *testing.T) {
	for _, test := range []struct{ name, object, want string }{
		{"true", `{"metadata":{"generation":2},"status":{"observedGeneration":2,"conditions":[{"type":"Progressing","status":"False"},{"type":"Available","status":"True"}]}}`, ""},
		{"without generations", `{"status":{"conditions":[{"type":"Available","status":"True"}]}}`, ""},
		{"false", `{"status":{"conditions":[{"type":"Available","status":"False","message":"no pod is ready\nat all"}]}}`, "Available is False: no pod is ready"},
		{"unknown", `{"status":{"conditions":[{"type":"Available","status":"Unknown"}]}}`, "Available is Unknown"},
		{"absent", `{"status":{"conditions":[{"type":"Progressing","status":"True"}]}}`, "its status has no condition Available"},
		{"no status", `{}`, "its status has no condition Available"},
		{"old status", `{"metadata":{"generation":3},"status":{"observedGeneration":2,"conditions":[{"type":"Available","status":"True"}]}}`, "its latest change is not in its status yet"},
		{"no JSON", `error`, "kubectl get printed no JSON"},
	} {
		got := ""
		if err := checkObjectCondition([]byte(test.object), "Available"); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// The conditions contain the checks of the control planes' settings, in the order of their names.
func TestObjectConditions(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true)}, refuse: map[string]string{
		"kubectl get queue/default -o json":                     `cp-1: exit status 1: Error from server (NotFound): queues "default" not found`,
		"kubectl get deployment.apps/gangs -o json -n a-system": "cp-1: connection refused",
	}}
	e := c.engine("w-1", "cp-1")
	e.Cluster.Members[1].Settings = []byte(`{"checks":{
		"b":{"resource":"queue/default","namespace":null,"condition":null},
		"a":{"resource":"deployment.apps/gangs","namespace":"a-system","condition":"Available"}}}`)
	var got []string
	for _, condition := range e.Conditions(engine.CheckOptions{})[3:] {
		got = append(got, condition.Name+": "+condition.Probe(t.Context()).Error())
	}
	if want := "deployment.apps/gangs is Available: cp-1: connection refused, queue/default exists: it does not exist"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %s", got, want)
	}
}
