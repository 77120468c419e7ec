package kubernetes

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/nixeval"
)

type object = map[string]any

// cluster is a fake cluster. It answers the commands that the tests expect; any other command fails the
// test.
type cluster struct {
	t *testing.T

	mu    sync.Mutex
	nodes map[string]object // name → labels, annotations, ready, unschedulable
	pods  []object
	down  map[string]string // node → the error of every command on it
	ran   []string
	etcd  string

	busy int // how many times nixbench-kubernetes.service is still running

	conflicts int // how many writes fail with a conflict

	kubelets map[string]kubelet // nodes whose kubelet is not healthy
	refuse   map[string]string  // command → the error that it ends with
	sick     map[string]string  // node → the error of its API server
	silent   map[string]bool    // nodes on which kubectl never ends
	bare     map[string]bool    // nodes without kubectl

	bound   map[string][]object // node → its pods
	budgets []object
	drained func(c *cluster, node string) error // what kubectl drain does; nil: it evicts all pods

	flags []string // of the last kubectl drain

	credentials []string // node: certificate, of each node that has received credentials to join
	noCluster   bool
	settings    string // of each node in the hive
	phases      string // the phase of all nodes; empty: join
}

// kubelet is the state of the kubelet of a node.
type kubelet struct {
	state          string
	begun, renewed time.Duration // ago
}

func node(isReady bool) object {
	return object{"ready": isReady, "labels": object{}, "annotations": object{}}
}

func controlPlane(isReady bool) object {
	n := node(isReady)
	n["labels"] = object{"node-role.kubernetes.io/control-plane": ""}
	return n
}

const etcdOfThree = `{"members":[{"ID":"a1","name":"cp-1","clientURLs":["https://cp-1:2379"]},{"ID":"b2","name":"cp-2","clientURLs":["https://cp-2:2379"]},{"ID":"c3","name":"cp-3","clientURLs":["https://cp-3:2379"]}]}`

const etcdOfTwo = `{"members":[{"ID":"a1","name":"cp-1","clientURLs":["https://cp-1:2379"]},{"ID":"b2","name":"cp-2","clientURLs":["https://cp-2:2379"]}]}`

func (c *cluster) run(ctx context.Context, on string, stdin io.Reader, argv ...string) ([]byte, error) {
	if c.silent[on] && argv[0] == "kubectl" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.down[on]; why != "" {
		return nil, errors.New(why)
	}
	words := slices.DeleteFunc(slices.Clone(argv), func(a string) bool { return strings.HasPrefix(a, "--") || a == AdminConf })
	c.ran = append(c.ran, on+": "+strings.Join(words, " "))
	line := strings.Join(words, " ")
	phase := "join"
	if c.phases != "" {
		phase = c.phases
	}
	for command, why := range c.refuse {
		if strings.HasPrefix(line, command) {
			return nil, errors.New(why)
		}
	}
	switch {
	case argv[0] == "kubectl" && c.sick[on] != "":
		return nil, errors.New(c.sick[on])
	case argv[0] == "kubectl" && c.bare[on]:
		return nil, errors.New(on + ": kubectl get: exit status 127: bash: line 1: kubectl: command not found")
	case line == "test ! -e":
		return nil, nil // there is no admin.conf either
	case c.noCluster && argv[0] == "kubectl":
		return nil, errors.New(noAdmin)
	case line == "kubectl get nodes -o json", line == "kubectl get nodes -l "+HollowLabel+" -o json":
		items := []object{}
		for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
			n := c.nodes[name]
			if labels, _ := n["labels"].(object); words[3] == "-l" && labels[HollowLabel] == nil {
				continue
			}
			status := "False"
			if n["ready"] == true {
				status = "True"
			}
			items = append(items, object{
				"metadata": object{"name": name, "labels": n["labels"], "annotations": n["annotations"]},
				"spec":     object{"unschedulable": n["unschedulable"] == true, "taints": n["taints"]},
				"status":   object{"nodeInfo": object{"kubeletVersion": n["kubelet"]}, "conditions": []object{{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": status, "message": "starting"}}},
			})
		}
		return json.Marshal(object{"items": items})
	case strings.HasPrefix(line, "kubectl patch node "):
		var patch struct {
			Metadata struct{ Annotations object }
			Spec     object
		}
		if err := json.Unmarshal([]byte(words[5]), &patch); err != nil {
			c.t.Error(err)
		}
		n := c.nodes[words[3]]
		for key, value := range patch.Metadata.Annotations {
			if n["annotations"].(object)[key] = value; value == nil {
				delete(n["annotations"].(object), key)
			}
		}
		if value, set := patch.Spec["unschedulable"]; set {
			n["unschedulable"] = value
		}
	case line == "kubectl replace -f -":
		if c.conflicts--; c.conflicts >= 0 {
			return nil, errors.New("Error from server (Conflict): the object has been modified")
		}
		var list struct {
			Items []struct {
				Metadata struct {
					Name                string
					Labels, Annotations map[string]any
				}
				Spec struct{ Taints []any }
			}
		}
		if err := json.NewDecoder(stdin).Decode(&list); err != nil {
			c.t.Error(err)
		}
		for _, n := range list.Items {
			name := n.Metadata.Name
			c.nodes[name]["labels"], c.nodes[name]["annotations"], c.nodes[name]["taints"] = n.Metadata.Labels, n.Metadata.Annotations, n.Spec.Taints
		}
	case line == "kubectl get pods -o json":
		i := slices.IndexFunc(argv, func(a string) bool { return strings.HasPrefix(a, "--field-selector=spec.nodeName=") })
		return json.Marshal(object{"items": c.bound[strings.TrimPrefix(argv[i], "--field-selector=spec.nodeName=")]})
	case line == "kubectl get poddisruptionbudgets -o json":
		return json.Marshal(object{"items": c.budgets})
	case strings.HasPrefix(line, "kubectl drain "):
		c.flags = argv
		if c.nodes[words[2]]["unschedulable"] != true {
			c.t.Errorf("%s is drained before it is cordoned", words[2])
		}
		if c.drained != nil {
			time.Sleep(5 * time.Second) // its --timeout
			return nil, c.drained(c, words[2])
		}
		c.bound[words[2]] = nil
	case strings.HasPrefix(line, "kubectl delete nodes -l "+HollowLabel+"="):
		_, machine, _ := strings.Cut(line, "=")
		maps.DeleteFunc(c.nodes, func(_ string, n object) bool { return n["labels"].(object)[HollowLabel] == machine })
	case strings.HasPrefix(line, "kubectl delete node "):
		delete(c.nodes, words[3])
	case line == "test -e /etc/kubernetes/kubelet.conf":
		if c.nodes[on] == nil {
			return nil, errors.New("exit status 1")
		}
	case strings.HasPrefix(line, "kubectl -n kube-node-lease get lease "):
		return []byte(time.Now().Add(-c.kubelets[words[5]].renewed).UTC().Format("2006-01-02T15:04:05.000000Z")), nil
	case argv[0] == "sh" && argv[len(argv)-1] == "/run/join.conf":
		kubeconfig, err := io.ReadAll(stdin)
		certificate, _ := base64.StdEncoding.DecodeString(gjson.GetBytes(kubeconfig, "users.0.user.client-certificate-data").String())
		c.credentials = append(c.credentials, on+": "+string(certificate))
		return nil, err
	case argv[0] == "sh" && argv[len(argv)-1] == setupUnit:
		if c.busy--; c.busy >= 0 {
			return []byte("SubState=running\n"), nil
		}
		return []byte("SubState=exited\n"), nil
	case argv[0] == "sh":
		k, ok := c.kubelets[on]
		if !ok {
			k = kubelet{"running", time.Hour, 0}
		}
		if answer, ok := enginetest.AnswerLook(argv, func(unit string) string {
			return map[string]string{"containerd.service": "running", "kubelet.service": k.state}[unit]
		}, "the log of the kubelet"); ok {
			return answer, nil
		}
		return fmt.Appendf(nil, "now=%d\nSubState=%s\nActiveEnterTimestamp=@%d\n", time.Now().Unix(), k.state, time.Now().Add(-k.begun).Unix()), nil
	case line == "true", line == "kubectl get -raw /readyz", line == "kubectl get /readyz", line == "nixbench-kubernetes-reset":
	case line == "kubectl -n kube-system get pods -o json":
		return json.Marshal(object{"items": c.pods})
	case strings.HasPrefix(line, "etcdctl member list"):
		return []byte(c.etcd), nil
	case strings.HasPrefix(line, "etcdctl member remove"):
	case line == "cat "+progressFile:
		return json.Marshal(object{"phase": phase, "message": "the API does not answer yet\nmore"})
	case strings.HasPrefix(line, "install "), line == "systemctl start nixbench-kubernetes.service":
	case strings.HasPrefix(line, "journalctl"):
		return fmt.Appendf(nil, "the log of %s\n", strings.TrimPrefix(argv[len(argv)-1], "--unit=")), nil
	default:
		c.t.Errorf("unexpected command: %s on %s", line, on)
	}
	return nil, nil
}

func (c *cluster) engine(members ...string) *Engine {
	if c.bound == nil {
		c.bound = map[string][]object{}
	}
	e := New(engine.Cluster{Name: "test", Run: c.run})
	for _, name := range members {
		role := Worker
		if strings.HasPrefix(name, "cp") {
			role = ControlPlane
		}
		e.Cluster.Members = append(e.Cluster.Members, engine.Member{Node: name, Engine: nixeval.Engine{Kind: Kind.Name, Role: role, Settings: json.RawMessage(cmp.Or(c.settings, testSettings))}})
	}
	return e
}

// testSettings are settings of a control plane, as modules/kubernetes sets them.
const testSettings = `{"port": 6443, "permit": "/run/nixbench/secrets/kubernetes-init",
  "probe": {"image": "docker.io/library/busybox:1.37", "serve": ["httpd", "-f", "-p", "8080", "-h", "/etc"], "get": ["wget", "-q", "-T", "3", "-O", "-"]}}`

func (c *cluster) did(prefix string) []string {
	var out []string
	for _, line := range c.ran {
		if _, command, _ := strings.Cut(line, ": "); strings.HasPrefix(command, prefix) {
			out = append(out, line)
		}
	}
	return out
}

const noAdmin = "error: stat /etc/kubernetes/admin.conf: no such file or directory"

func TestMembers(t *testing.T) {
	c := &cluster{t: t, down: map[string]string{"cp-1": noAdmin, "cp-2": noAdmin}}
	if m, err := c.engine("cp-1", "cp-2", "w-1").Members(t.Context()); m != nil || err != nil {
		t.Errorf("before there is a cluster: %v, %v", m, err)
	}
	c.down["cp-2"] = "connection refused"
	if _, err := c.engine("cp-1", "cp-2").Members(t.Context()); err == nil {
		t.Error("a cluster that does not answer is not the same as none")
	}
	delete(c.down, "cp-2")
	cp := node(true)
	cp["labels"] = object{"node-role.kubernetes.io/control-plane": ""}
	w := node(false)
	w["annotations"] = object{DrainedAnnotation: "2026-01-01T00:00:00Z"}
	w["unschedulable"] = true
	w["kubelet"] = "v1.34.4"
	c.nodes = map[string]object{"cp-2": cp, "w-1": w}
	m, err := c.engine("cp-1", "cp-2", "w-1").Members(t.Context())
	want := map[string]engine.Status{"cp-2": {Ready: true, OneByOne: true}, "w-1": {Drained: true, Cordoned: true, Version: "1.34.4"}}
	if err != nil || !maps.Equal(m, want) {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestDrainAndUncordon(t *testing.T) {
	theirs := node(true)
	theirs["unschedulable"] = true
	c := &cluster{t: t, nodes: map[string]object{"cp-1": node(true), "w-1": node(true), "w-2": theirs}}
	e := c.engine("cp-1", "w-1", "w-2")
	for _, name := range []string{"w-1", "w-2", "w-9"} {
		if err := e.Drain(t.Context(), []string{name}, engine.DrainOptions{}, quiet); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.did("kubectl drain"); len(got) != 1 || got[0] != "cp-1: kubectl drain w-1" {
		t.Errorf("drained: %q; a node that an administrator has cordoned must not be drained", got)
	}
	if m, _ := e.Members(t.Context()); !m["w-1"].Drained || m["w-2"].Drained {
		t.Errorf("drained members: %+v", m)
	}
	c.busy = 1
	for _, name := range []string{"w-1", "w-2", "w-9"} {
		if err := errors.Join(e.WaitReady(t.Context(), name, quiet), e.Uncordon(t.Context(), name)); err != nil {
			t.Fatal(err)
		}
	}
	if c.nodes["w-1"]["unschedulable"] == true || c.nodes["w-2"]["unschedulable"] != true {
		t.Errorf("after returning: %v", c.nodes)
	}
	if m, _ := e.Members(t.Context()); m["w-1"].Drained {
		t.Error("the mark stayed")
	}
	looked := slices.DeleteFunc(slices.Clone(c.ran), func(line string) bool {
		return !strings.HasPrefix(line, "w-1: ") || !strings.HasSuffix(line, " "+setupUnit)
	})
	if len(looked) != 2 {
		t.Errorf("w-1 was given work before it had taken over its settings: %q", c.ran)
	}
}

func TestConditions(t *testing.T) {
	c := &cluster{t: t, nodes: map[string]object{"cp-1": node(true), "w-1": node(false), "old": node(true)}}
	e := c.engine("cp-1", "w-1", "w-2")
	conditions := e.Conditions(engine.CheckOptions{})
	if err := conditions[0].Probe(t.Context()); err != nil {
		t.Errorf("the API: %v", err)
	}
	err := conditions[1].Probe(t.Context())
	if err == nil || err.Error() != "not registered: w-2, at join (the API does not answer yet); not Ready: w-1; registered, but not in the hive: old" {
		t.Errorf("nodes: %v", err)
	}
	why := conditions[1].Explain(t.Context())
	for _, want := range []string{"w-1: join (the API does not answer yet)", "kubelet: the log of kubelet.service", "w-2: join"} {
		if !strings.Contains(why, want) {
			t.Errorf("%q is not in the explanation:\n%s", want, why)
		}
	}
	if strings.Contains(why, "cp-1") {
		t.Errorf("cp-1 is healthy, but it is explained:\n%s", why)
	}

	if err := conditions[2].Probe(t.Context()); err == nil {
		t.Error("no pods are not all pods")
	}
	c.pods = []object{
		{"metadata": object{"name": "coredns-1"}, "status": object{"phase": "Pending", "containerStatuses": []object{{"state": object{"waiting": object{"reason": "ErrImagePull"}}}}}},
		{"metadata": object{"name": "job"}, "status": object{"phase": "Succeeded"}},
	}
	if err := conditions[2].Probe(t.Context()); err == nil || err.Error() != "not ready: coredns-1 (ErrImagePull)" {
		t.Errorf("pods: %v", err)
	}
	c.pods[0]["status"] = object{"phase": "Running", "conditions": []object{{"type": "Ready", "status": "True"}}}
	if err := conditions[2].Probe(t.Context()); err != nil {
		t.Errorf("pods: %v", err)
	}

	c.nodes = map[string]object{"cp-1": node(true), "w-1": node(true), "w-2": node(true)}
	if err := conditions[1].Probe(t.Context()); err != nil {
		t.Errorf("nodes: %v", err)
	}
}

// The conditions require nothing of members that are away.
func TestConditionsWithoutAwayMembers(t *testing.T) {
	c := &cluster{t: t, phases: "ready", nodes: map[string]object{"cp-1": node(true), "w-1": node(false)}, down: map[string]string{"cp-2": "cp-2: kubectl\nconnection refused"}}
	c.pods = []object{
		{"metadata": object{"name": "proxy-1"}, "spec": object{"nodeName": "w-1"}, "status": object{"phase": "Running"}},
		{"metadata": object{"name": "proxy-2"}, "spec": object{"nodeName": "cp-1"}, "status": object{"phase": "Running", "conditions": []object{{"type": "Ready", "status": "True"}}}},
	}
	e := c.engine("cp-1", "cp-2", "w-1", "w-2")
	for i, away := range [][]string{nil, {"cp-2", "w-1", "w-2"}} {
		for _, condition := range e.Conditions(engine.CheckOptions{Away: away}) {
			if err := condition.Probe(t.Context()); (err == nil) != (i > 0) {
				t.Errorf("away %q: %s: %v", away, condition.Name, err)
			}
		}
	}
}

func TestAPIThatIsNotThereYet(t *testing.T) {
	c := &cluster{t: t}
	e := c.engine("cp-1")
	run := e.Run
	e.Run = func(ctx context.Context, on string, stdin io.Reader, argv ...string) ([]byte, error) {
		if argv[0] == "kubectl" {
			return nil, errors.New(noAdmin)
		}
		return run(ctx, on, stdin, argv...)
	}
	if err := e.Conditions(engine.CheckOptions{})[0].Probe(t.Context()); err == nil || err.Error() != "cp-1 is at join (the API does not answer yet)" {
		t.Error(err)
	}
}

// A control plane that has joined may not have a running API server yet.
func TestAPIOfEveryControlPlane(t *testing.T) {
	c := &cluster{t: t, phases: "ready", nodes: map[string]object{"cp-1": node(true)}, down: map[string]string{"cp-2": "cp-2: kubectl\nconnection refused"}}
	if err := c.engine("cp-1", "cp-2", "w-1").Conditions(engine.CheckOptions{})[0].Probe(t.Context()); err == nil || err.Error() != "cp-2: connection refused" {
		t.Error(err)
	}
}

// Only the first control plane may create the cluster, and only if no control plane has been set up.
func TestAdmit(t *testing.T) {
	c := &cluster{t: t, noCluster: true}
	e := c.engine("cp-1", "cp-2", "w-1")
	for _, name := range []string{"w-1", "cp-2", "cp-1", "stranger"} {
		if err := e.Admit(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.did("install"); len(got) != 1 || got[0] != "cp-1: install -D -m 0600 /dev/null /run/nixbench/secrets/kubernetes-init" {
		t.Errorf("permitted: %q", got)
	}

	c = &cluster{t: t, noCluster: true, down: map[string]string{"cp-2": "no route to host"}}
	c.phases = "ready"
	if err := c.engine("cp-1", "cp-2").Admit(t.Context(), "cp-1"); err == nil || len(c.did("install")) > 0 {
		t.Errorf("cp-2 may be a cluster that is down: %v, %q", err, c.did("install"))
	}

	c = &cluster{t: t, nodes: map[string]object{"cp-1": node(true)}}
	e = c.engine("cp-1", "w-1", "w-2")
	for _, name := range []string{"w-1", "w-2"} {
		if err := e.Admit(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.did("install")) > 0 {
		t.Errorf("an existing cluster: %q", c.ran)
	}
	// A reset may have stopped the unit that joins the node.
	if got := c.did("systemctl start nixbench-kubernetes.service"); len(got) != 2 || !strings.HasPrefix(got[0], "w-1: ") {
		t.Errorf("begun: %q", got)
	}
}

// A node receives credentials of its own to join with, whether the cluster exists or not. A hive with its own token needs none.
func TestAdmitSendsCredentials(t *testing.T) {
	for _, c := range []*cluster{{noCluster: true}, {nodes: map[string]object{"cp-1": node(true)}}} {
		for settings, want := range map[string][]string{
			`{"joinConfig":"/run/join.conf"}`: {"w-1: system:node:w-1 in system:nodes by cluster-ca", "cp-2: system:node:cp-2 in system:nodes by cluster-ca"},
			`{"joinConfig":""}`:               nil,
		} {
			c.t, c.settings, c.credentials = t, settings, nil
			e := c.engine("cp-1", "cp-2", "w-1")
			e.Issue = func(authority, user, group string) (ca, certificate, key []byte, err error) {
				return []byte("ca"), []byte(user + " in " + group + " by " + authority), []byte("key"), nil
			}
			for _, name := range []string{"w-1", "cp-2", "stranger"} {
				if err := e.Admit(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(c.credentials, want) {
				t.Errorf("no cluster: %v, %s: %q, want %q", c.noCluster, settings, c.credentials, want)
			}
		}
	}
}
