package kubernetes

import (
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/engine"
)

// The conditions contain the checks of the control planes' settings, in the order of their names.
func TestObjectConditions(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": controlPlane(true)}, refuse: map[string]string{
		"kubectl get queue/default -o json":             `cp-1: exit status 1: Error from server (NotFound): queues "default" not found`,
		"kubectl get deployment.apps/gangs -n a-system": "cp-1: connection refused",
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
