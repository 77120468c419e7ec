package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

// All API servers must use the keys, also those of nodes that are not in the hive.
func TestMembersWithout(t *testing.T) {
	server := func(node, sum, ready string) object {
		return object{
			"spec":   object{"nodeName": node, "containers": []object{{"env": []object{{"name": "TZ", "value": "UTC"}, {"name": "NIXBENCH_ENCRYPTION", "value": sum}}}}},
			"status": object{"conditions": []object{{"type": "Ready", "status": ready}}},
		}
	}
	var pods []object
	var failure error
	e := New(engine.Cluster{Members: []engine.Member{
		{Node: "cp-1", Engine: nixeval.Engine{Role: ControlPlane}}, {Node: "cp-2", Engine: nixeval.Engine{Role: ControlPlane}}, {Node: "w-1"}},
		Run: func(_ context.Context, _ string, _ io.Reader, argv ...string) ([]byte, error) {
			if line := strings.Join(argv, " "); !strings.Contains(line, "get pods -l component=kube-apiserver") {
				t.Errorf("unexpected: %s", line)
			}
			out, err := json.Marshal(object{"items": pods})
			return out, errors.Join(err, failure)
		}})
	for name, test := range map[string]struct {
		pods []object
		want []string
	}{
		"all":          {[]object{server("cp-1", "new", "True"), server("cp-2", "new", "True")}, nil},
		"an old one":   {[]object{server("cp-1", "new", "True"), server("cp-2", "old", "True")}, []string{"cp-2"}},
		"not up again": {[]object{server("cp-1", "new", "False"), server("cp-2", "new", "True")}, []string{"cp-1"}},
		"one is away":  {[]object{server("cp-2", "new", "True")}, []string{"cp-1"}},
		"a third":      {[]object{server("cp-1", "new", "True"), server("cp-2", "new", "True"), server("cp-3", "old", "True")}, []string{"cp-3"}},
		"none says":    {[]object{{"spec": object{"nodeName": "cp-1"}}}, []string{"cp-1", "cp-2"}},
	} {
		pods = test.pods
		if got, err := e.MembersWithout(t.Context(), "kubernetes-encryption", "new"); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, test.want)
		}
	}
	failure = errors.New("no route to host")
	if _, err := e.MembersWithout(t.Context(), "kubernetes-encryption", "new"); err == nil {
		t.Error("a cluster that does not answer has agreed")
	}
	if got, err := e.MembersWithout(t.Context(), "munge", "new"); err != nil || got != nil {
		t.Errorf("a secret of another program: %v, %v", got, err)
	}
	failure = errors.New(noAdmin)
	if got, err := e.MembersWithout(t.Context(), "kubernetes-encryption", "new"); err != nil || got != nil {
		t.Errorf("without a cluster nothing is stored: %v, %v", got, err)
	}
}
