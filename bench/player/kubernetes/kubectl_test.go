package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench/player/playertest"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

// nullAPI is an API server whose scheduler takes no time: the pods of a Job are placed, run and end when the Job is created.
type nullAPI struct {
	mu      sync.Mutex
	version int
	pods    []string // watch events
	more    *sync.Cond
}

func newNullAPI(tb testing.TB) *httptest.Server {
	a := &nullAPI{}
	a.more = sync.NewCond(&a.mu)
	s := httptest.NewServer(a)
	tb.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// discovery has what kubectl asks for before it creates an object.
var discovery = map[string]string{
	"/api":           `{"kind":"APIVersions","versions":["v1"]}`,
	"/apis":          `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"batch","versions":[{"groupVersion":"batch/v1","version":"v1"}],"preferredVersion":{"groupVersion":"batch/v1","version":"v1"}}]}`,
	"/api/v1":        `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["create","get","list","watch"]}]}`,
	"/apis/batch/v1": `{"kind":"APIResourceList","groupVersion":"batch/v1","resources":[{"name":"jobs","singularName":"job","namespaced":true,"kind":"Job","verbs":["create"]}]}`,
}

func (a *nullAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch text, ok := discovery[r.URL.Path]; {
	case ok:
		_, _ = io.WriteString(w, text)
	case r.URL.Path == "/api/v1/namespaces": // kubectl sends it in another form
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"`+namespace+`"}}`)
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		a.create(body)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	case r.URL.Query().Get("watch") != "":
		a.watch(w, r)
	default: // the list before a watch
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}
}

func (a *nullAPI) create(body []byte) {
	var o struct {
		Kind     string
		Metadata map[string]any
		Spec     struct {
			Template struct{ Spec json.RawMessage }
		}
	}
	if json.Unmarshal(body, &o) != nil {
		return
	}
	states := []string{`"ADDED" Pending`, `"MODIFIED" Pending node`, `"MODIFIED" Running node`, `"MODIFIED" Succeeded node`}
	if o.Kind == "Pod" {
		states = states[:1]
	} else if o.Kind != "Job" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range states {
		f := strings.Fields(s)
		a.version++
		o.Metadata["resourceVersion"] = fmt.Sprint(a.version)
		o.Metadata["managedFields"] = []any{map[string]any{"manager": "null", "fieldsV1": map[string]string{"f": strings.Repeat("x", 2000)}}} // as long as those of a real pod
		metadata, _ := json.Marshal(o.Metadata)
		spec := map[string]any{}
		_ = json.Unmarshal(o.Spec.Template.Spec, &spec)
		if len(f) > 2 {
			spec["nodeName"] = f[2]
		}
		text, _ := json.Marshal(spec)
		a.pods = append(a.pods, fmt.Sprintf(`{"type":%s,"object":{"kind":"Pod","apiVersion":"v1","metadata":%s,"spec":%s,"status":{"phase":"%s"}}}`+"\n", f[0], metadata, text, f[1]))
	}
	a.more.Broadcast()
}

// watch sends all events from the first one.
func (a *nullAPI) watch(w http.ResponseWriter, r *http.Request) {
	stop := context.AfterFunc(r.Context(), a.more.Broadcast)
	defer stop()
	for sent := 0; ; {
		a.mu.Lock()
		for sent == len(a.pods) && r.Context().Err() == nil {
			a.more.Wait()
		}
		events := a.pods[sent:]
		sent = len(a.pods)
		a.mu.Unlock()
		if r.Context().Err() != nil {
			return
		}
		for _, e := range events {
			_, _ = io.WriteString(w, e)
		}
		w.(http.Flusher).Flush()
	}
}

// localCluster runs the player's commands on this machine, with kubectl and an API server without a scheduler. systemd has stand-ins.
type localCluster struct {
	folder string
	server string
	env    []string
}

func newLocalCluster(tb testing.TB) *localCluster {
	if _, err := exec.LookPath("kubectl"); err != nil {
		tb.Skip("kubectl is not on PATH")
	}
	bin, err := filepath.Abs("testdata/bin")
	if err != nil {
		tb.Fatal(err)
	}
	l := &localCluster{folder: tb.TempDir(), server: newNullAPI(tb).URL}
	l.env = append(os.Environ(), "HOME="+l.folder, "STATE="+l.folder, "PATH="+bin+":"+os.Getenv("PATH"))
	tb.Cleanup(func() {
		if out, err := l.run(context.Background(), "cp-1", strings.NewReader(watchUnit.StopScript()), "sh", "-s"); err != nil {
			tb.Errorf("stop the watch: %v: %s", err, out)
		}
	})
	return l
}

func (l *localCluster) player() *Player {
	return New(engine.Cluster{Name: "bench", Run: l.run, Members: []engine.Member{{Node: "cp-1", Engine: nixeval.Engine{Kind: "kubernetes", Role: "control-plane"}}}}, "",
		Options{Image: "i", Command: []string{"sleep", "{runtime}"}}).(*Player)
}

func (l *localCluster) run(ctx context.Context, _ string, stdin io.Reader, argv ...string) ([]byte, error) {
	local := strings.NewReplacer(watchFolder, l.folder+"/watch", "https://127.0.0.1:6443", l.server, "--kubeconfig "+adminFile, "", "--tls-server-name=kubernetes", "")
	var args []string
	for i, a := range argv {
		switch {
		case a == "--kubeconfig" || i > 0 && argv[i-1] == "--kubeconfig" || a == "--tls-server-name=kubernetes":
		default:
			args = append(args, local.Replace(a))
		}
	}
	var input []byte
	if stdin != nil {
		var err error
		if input, err = io.ReadAll(stdin); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, "env", args...) // finds the stand-ins
	cmd.Stdin, cmd.Env = strings.NewReader(local.Replace(string(input))), l.env
	var diag bytes.Buffer
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", argv[0], err, strings.TrimSpace(diag.String()))
	}
	return out, err
}

// BenchmarkKubectl measures how many jobs per second the player submits and observes with kubectl and bash, if the cluster takes no time, and
// how much processor time the commands that create jobs use, which depends less on other work of the computer.
func BenchmarkKubectl(b *testing.B) {
	const jobs = 2000
	for b.Loop() {
		p, before := newLocalCluster(b).player(), childrenCPU(b)
		playertest.ReportRate(b, p, playertest.Burst(jobs))
		b.ReportMetric(float64((childrenCPU(b)-before).Microseconds())/1000/jobs, "create-ms/job")
	}
}

// childrenCPU returns the processor time of processes that this one has waited for.
func childrenCPU(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
