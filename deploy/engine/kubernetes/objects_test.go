package kubernetes

import "testing"

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
