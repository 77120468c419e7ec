package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

// manifests is the folder with the manifests of the static pods.
const manifests = "/etc/kubernetes/manifests"

// ahead is what the clock of the fake control plane is ahead.
const ahead = 7 * time.Second

// line is a line of the watch, which is printed at a time.
type line struct {
	at   time.Time
	text string
}

// fakeCluster is a control plane whose programs print what kubectl, tail and systemd print. Its nodes have room for all pods.
type fakeCluster struct {
	t         testing.TB
	mu        sync.Mutex
	namespace bool
	objects   map[string]map[string]any // by kind and name
	lines     []line
	watching  bool
	ended     bool // the watch has ended
	printed   strings.Builder
	calls     []string
	count     map[string]int
	answer    map[string]func(n int) (string, error) // by program: an answer instead of the usual one, if it is not empty
	files     map[string]string
	drift     time.Duration // what the clock is ahead at the end, in addition
	lag       time.Duration // how late the watch receives changes
	exit      string        // exit status of the pods, if they fail
	client    string        // the node on which commands run; empty: cp-1
	access    string        // the kubeconfig of the client
	launch    time.Duration // from the placement of a pod to its first instruction
	logs      string        // of the pods, on worker-1
	pulls     int           // how often kubectl get pods says that the image is missing
	digest    string        // of the image

	noScheduler     bool   // the metrics of kube-scheduler cannot be read
	schedulerConfig string // what kubectl prints as the ConfigMap of another scheduler
}

func newFake(t testing.TB) *fakeCluster {
	return &fakeCluster{t: t, objects: map[string]map[string]any{}, count: map[string]int{}, answer: map[string]func(int) (string, error){}, files: map[string]string{
		manifests + "/kube-scheduler.yaml":          "spec:\n  containers:\n  - command:\n    - kube-scheduler\n    - --bind-address=127.0.0.1\n    - --kube-api-qps=200\n",
		manifests + "/kube-apiserver.yaml":          "spec:\n  containers:\n  - command:\n    - kube-apiserver\n    - --max-requests-inflight=800\n",
		manifests + "/kube-controller-manager.yaml": "spec:\n  containers:\n  - command:\n    - kube-controller-manager\n    - --controllers=*,bootstrapsigner\n",
	}}
}

func (f *fakeCluster) player(o Options) *Player {
	member := func(node, role, settings string) engine.Member {
		return engine.Member{Node: node, Engine: nixeval.Engine{Kind: "kubernetes", Role: role, Settings: []byte(settings)}}
	}
	if o.Image == "" {
		o.Image = "localhost/sleep:1"
	}
	p := New(engine.Cluster{Name: "bench", Run: f.run, Members: []engine.Member{
		member("worker-1", "worker", ""), member("cp-1", "control-plane", `{"port": 7443}`), member("cp-2", "control-plane", ""),
	}}, f.client, o).(*Player)
	p.watch.Poll, p.watch.Quiet = 20*time.Millisecond, 100*time.Millisecond
	return p
}

func (f *fakeCluster) run(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var input []byte
	if stdin != nil {
		var err error
		if input, err = io.ReadAll(stdin); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, all := strings.CutPrefix(strings.Join(argv, "\x00"), "sh\x00-c\x00"+createProgram+"\x00sh\x00")
	if all {
		argv = argv[4:]
	}
	f.calls = append(f.calls, node+": "+strings.Join(argv, " "))
	f.count[argv[0]]++
	if a := f.answer[argv[0]]; a != nil {
		if out, err := a(f.count[argv[0]]); out != "" || err != nil {
			return []byte(out), err
		}
	}
	now := time.Now()
	switch script := string(input); {
	case len(argv) > 2 && argv[0] == "sh" && argv[2] == "--":
		return []byte("etcd|2000000|2097152\n"), nil
	case argv[0] == "date" && node != cmp.Or(f.client, "cp-1"): // the other clocks show the right time
		return []byte(epoch(now)), nil
	case slices.Equal(argv, stampsCommand):
		if node == "worker-1" {
			return []byte(f.logs), nil
		}
		return nil, nil
	case argv[0] == "bash" && strings.Contains(argv[2], "tail --follow"):
		time.Sleep(5 * time.Millisecond)
		return nil, nil
	case slices.Contains(argv, "/metrics"):
		return f.metrics(node, argv)
	case argv[0] == "sh" && argv[1] == "-c" && node == f.client:
		if !strings.Contains(argv[2], "umask 077") || !strings.HasSuffix(argv[2], accessFile) {
			f.t.Errorf("unexpected command %q", argv)
		}
		f.access = script
		return nil, nil
	case argv[0] == "kubectl" && argv[1] == "config" && node == "cp-1":
		return []byte(`{"clusters":[{"cluster":{"server":"https://192.168.222.2:6443","certificate-authority-data":"Q0E="}}],"users":[{"user":{"token":"admin"}}]}`), nil
	case argv[0] == "kubectl" && argv[2] == accessFile && node == f.client:
		if !strings.Contains(f.access, `"token": "secret"`) {
			return nil, errors.New("error: You must be logged in to the server (Unauthorized)")
		}
		argv = append(argv[:3:3], append([]string{"--server=https://127.0.0.1:7443", ""}, argv[3:]...)...)
	case argv[0] == "kubectl" || argv[0] == "cat":
		if node != "cp-1" {
			return nil, fmt.Errorf("%s: %q", node, argv)
		}
	case node != cmp.Or(f.client, "cp-1"):
		return nil, fmt.Errorf("%s: %q", node, argv)
	}
	switch script := string(input); {
	case argv[0] == "date":
		if f.count["date of cp-1"]++; f.count["date of cp-1"] > 5 {
			now = now.Add(f.drift)
		}
		return []byte(epoch(now.Add(ahead))), nil
	case argv[0] == "sh" && strings.HasPrefix(script, "systemctl --quiet is-active"):
		if !f.watching || f.ended {
			return []byte("ended\n"), nil
		}
	case argv[0] == "sh":
		f.watching = strings.Contains(script, "systemd-run")
		f.printed.Reset()
		if f.watching {
			for _, o := range f.objects {
				if o["kind"] == "Pod" {
					f.add(now, "ADDED|"+firstPodName+"||||Pending||")
				}
			}
		}
	case argv[0] == "tail":
		return f.tail(argv, now)
	case argv[0] == "cat":
		if text, ok := f.files[argv[1]]; ok {
			return []byte(text), nil
		}
		return nil, fmt.Errorf("cat: %s: No such file or directory", argv[1])
	case argv[0] == "kubectl" && slices.Contains(argv, "configmap"):
		return []byte(f.schedulerConfig), nil
	case argv[0] == "kubectl":
		if argv[3] != "--server=https://127.0.0.1:7443" {
			f.t.Errorf("unexpected command %q", argv)
		}
		out, err := f.kubectl(argv[5:], input)
		switch {
		case all && err != nil:
			return fmt.Appendf(out, "%v\nexit status 1\n", err), nil
		case all:
			return append(out, "exit status 0\n"...), nil
		case err != nil: // as [remote.RunError]
			text := err.Error()
			err = errors.New(text[max(0, len(text)-4<<10):])
		}
		return out, err
	default:
		f.t.Errorf("unexpected command %q", argv)
	}
	return nil, nil
}

func (f *fakeCluster) add(at time.Time, text string) {
	us := at.Add(ahead).UnixMicro()
	f.lines = append(f.lines, line{at, fmt.Sprintf("%d.%06d|%s|%s\n", us/1e6, us%1e6, text, at.Add(ahead-f.lag).UTC().Format(time.RFC3339))})
}

// metrics answers to a request for the metrics of an API server, or of kube-scheduler, which runs only on the first control plane.
func (f *fakeCluster) metrics(node string, argv []string) ([]byte, error) {
	file := "testdata/apiserver"
	if slices.Contains(argv, "--server=https://127.0.0.1:10259") {
		if file = "testdata/scheduler"; node != "cp-1" || f.noScheduler {
			return nil, errors.New("connection refused")
		}
	}
	if !strings.HasPrefix(node, "cp-") {
		f.t.Errorf("%s: %q", node, argv)
	}
	return os.ReadFile(file)
}

// tail prints the lines that are due. The last one is incomplete at first.
func (f *fakeCluster) tail(argv []string, now time.Time) ([]byte, error) {
	if !f.watching {
		return nil, errors.New("tail: cannot open")
	}
	slices.SortStableFunc(f.lines, func(a, b line) int { return cmp.Compare(a.at.UnixMicro(), b.at.UnixMicro()) })
	for len(f.lines) > 0 && !f.lines[0].at.After(now) {
		f.printed.WriteString(f.lines[0].text)
		f.lines = f.lines[1:]
	}
	from, err := strconv.Atoi(strings.TrimPrefix(argv[1], "--bytes=+"))
	if err != nil || argv[2] != watchUnit.File() {
		f.t.Errorf("unexpected command %q", argv)
	}
	out := f.printed.String()[from-1:]
	if f.count["tail"]%3 == 0 && len(out) > 5 {
		out = out[:len(out)-5]
	}
	return []byte(out), nil
}

func (f *fakeCluster) kubectl(args []string, input []byte) ([]byte, error) {
	switch args[0] + " " + args[1] {
	case "create namespace":
		if f.namespace {
			return nil, errors.New(`Error from server (AlreadyExists): namespaces "nixbench-bench" already exists`)
		}
		f.namespace = true
	case "delete namespace":
		f.namespace, f.objects, f.lines, f.logs = false, map[string]map[string]any{}, nil, ""
	case "get pods":
		if f.pulls--; f.pulls > 0 {
			return []byte("worker-1||Back-off pulling image\n"), nil
		}
		return []byte("worker-1|" + cmp.Or(f.digest, "docker.io/library/busybox@sha256:1") + "|\n"), nil
	case "delete pods":
		delete(f.objects, "Pod/image-worker-1")
	case "create token":
		return []byte("secret\n"), nil
	case "get nodes":
		return []byte("110 110"), nil
	case "create --validate=false":
		var o map[string]any
		if err := json.Unmarshal(input, &o); err != nil {
			return nil, err
		}
		if f.count["kubectl"] == 5 && o["kind"] == "Pod" {
			return nil, errors.New(`Error from server (Forbidden): pods "x" is forbidden: error looking up service account nixbench-bench/default: serviceaccount "default" not found`)
		}
		items, isList := o["items"].([]any)
		if !isList {
			items = []any{o}
		}
		var out []byte
		var errs []error
		for _, i := range items {
			err := f.create(i.(map[string]any))
			if errs = append(errs, err); err == nil {
				kind, name := i.(map[string]any)["kind"].(string), i.(map[string]any)["metadata"].(map[string]any)["name"]
				out = fmt.Appendf(out, "%s/%s\n", map[string]string{"Job": "job.batch", "Pod": "pod", "PodGroup": "podgroup.scheduling"}[kind], name)
			}
		}
		return out, errors.Join(errs...)
	default:
		f.t.Errorf("unexpected command %q", args)
	}
	return nil, nil
}

// checkGroup checks that a scheduler of gangs would place the pods of a Job: those of a gang have a group of all of them, which exists before.
func (f *fakeCluster) checkGroup(name string, spec map[string]any) {
	template := spec["template"].(map[string]any)
	metadata := template["metadata"].(map[string]any)
	version, key, in := "", "", ""
	switch template["spec"].(map[string]any)["schedulerName"] {
	case "gangs":
		version, key, in = "scheduling.x-k8s.io/v1alpha1", "scheduling.x-k8s.io/pod-group", "labels"
	case "volcano":
		version, key, in = "scheduling.volcano.sh/v1beta1", "scheduling.k8s.io/group-name", "annotations"
	default:
		return
	}
	group := metadata[in].(map[string]any)[key]
	if group == nil && name != "gang" {
		return
	}
	o := f.objects[fmt.Sprint("PodGroup/", group)]
	if o == nil || o["apiVersion"] != version || o["spec"].(map[string]any)["minMember"] != spec["completions"] {
		f.t.Errorf("the pods of %s have the group %v: %v", name, group, o)
	}
}

// create creates an object. The pods of a Job run as soon as it exists.
func (f *fakeCluster) create(o map[string]any) error {
	metadata := o["metadata"].(map[string]any)
	kind, name := o["kind"].(string), metadata["name"].(string)
	if !f.namespace || metadata["namespace"] != namespace {
		return fmt.Errorf("Error from server (NotFound): error when creating \"STDIN\": namespaces %q not found", metadata["namespace"])
	}
	if f.objects[kind+"/"+name] != nil {
		return fmt.Errorf("Error from server (AlreadyExists): error when creating \"STDIN\": jobs.batch %q already exists", name)
	}
	f.objects[kind+"/"+name] = o
	if kind != "Job" {
		return nil
	}
	spec := o["spec"].(map[string]any)
	f.checkGroup(name, spec)
	pod := spec["template"].(map[string]any)["spec"].(map[string]any)
	command := fmt.Sprint(pod["containers"].([]any)[0].(map[string]any)["command"])
	m := regexp.MustCompile(`\bsleep ([0-9.]+)`).FindStringSubmatch(command)
	if m == nil {
		return fmt.Errorf("the command is %s", command)
	}
	seconds, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return err
	}
	for i := range int(spec["completions"].(float64)) {
		index := ""
		if spec["completionMode"] == "Indexed" {
			index = strconv.Itoa(i)
		}
		id := fmt.Sprintf("%s-%d|%s|%s", name, i, name, index)
		at := time.Now()
		f.add(at, "ADDED|"+id+"||Pending||")
		f.add(at.Add(time.Millisecond), "MODIFIED|"+id+"|worker-1|Pending||")
		begin := at.Add(2*time.Millisecond + f.launch)
		end := begin.Add(time.Millisecond + time.Duration(seconds*float64(time.Second)))
		f.add(begin, "MODIFIED|"+id+"|worker-1|Running||")
		for kind, at := range map[string]time.Time{"first": begin, "last": end.Add(-500 * time.Microsecond)} {
			f.logs += fmt.Sprintf("2026-11-28T15:00:00.1Z stdout F nixbench %s %s %d %d.%06d\n", kind, name, i, at.Unix(), at.Nanosecond()/1000)
		}
		phase := "Succeeded|0|"
		if f.exit != "" {
			phase = "Failed|" + f.exit + "|"
		}
		f.add(end, "MODIFIED|"+id+"|worker-1|"+phase)
		f.add(end.Add(time.Millisecond), "DELETED|"+id+"|worker-1|"+phase)
	}
	return nil
}

// epoch returns a time as the command date prints it.
func epoch(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }
