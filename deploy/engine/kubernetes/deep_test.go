package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

// slow is a fake cluster for deep checks whose pods start slowly.
type slow struct {
	t    *testing.T
	took time.Duration // until a pod is what it should be
	sick string        // pods of this name never are

	mu   sync.Mutex
	made map[string]time.Time // by namespace, or namespace/pod
	all  []string             // namespaces that there ever were
}

func (s *slow) engine() *Engine {
	return New(engine.Cluster{Run: s.run, Members: []engine.Member{
		{Node: "cp-1", Engine: nixeval.Engine{Role: ControlPlane}}, {Node: "w-1", Engine: nixeval.Engine{Role: Worker}}, {Node: "w-2", Engine: nixeval.Engine{Role: Worker}}}})
}

func (s *slow) run(ctx context.Context, _ string, stdin io.Reader, argv ...string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	words := slices.DeleteFunc(slices.Clone(argv), func(a string) bool { return strings.HasPrefix(a, "--") || a == AdminConf })
	line := strings.Join(words, " ")
	switch {
	case line == "kubectl apply -f -":
		return nil, s.apply(stdin)
	case line == "kubectl get namespaces -l nixbench.dev/check -o json":
		items := []object{}
		for name, at := range s.made {
			if !strings.Contains(name, "/") {
				items = append(items, object{"metadata": object{"name": name, "creationTimestamp": at.UTC().Format(time.RFC3339)}})
			}
		}
		return json.Marshal(object{"items": items})
	case strings.HasPrefix(line, "kubectl delete namespace "):
		for name := range s.made {
			if ns, _, _ := strings.Cut(name, "/"); ns == words[3] {
				delete(s.made, name)
			}
		}
		return nil, nil
	case strings.HasPrefix(line, "kubectl -n ") && words[3] == "get" && words[4] == "pod":
		at, is := s.made[words[2]+"/"+words[5]]
		if !is {
			return nil, fmt.Errorf("Error from server (NotFound): pods %q not found", words[5])
		}
		phase, isReady := "Pending", "False"
		if time.Since(at) >= s.took && words[5] != s.sick {
			phase, isReady = "Succeeded", "True"
		}
		return json.Marshal(object{"status": object{"phase": phase, "podIP": "10.244.1.2", "conditions": []object{{"type": "Ready", "status": isReady}}}})
	case strings.HasPrefix(line, "kubectl -n ") && words[3] == "logs":
		return nil, nil
	}
	s.t.Errorf("unexpected command: %s", line)
	return nil, nil
}

func (s *slow) apply(stdin io.Reader) error {
	var o struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
		Items    []json.RawMessage
	}
	data, err := io.ReadAll(stdin)
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	for _, item := range o.Items {
		if err := s.apply(strings.NewReader(string(item))); err != nil {
			return err
		}
	}
	switch o.Kind {
	case "Namespace":
		s.made[o.Metadata.Name] = time.Now()
		s.all = append(s.all, o.Metadata.Name)
	case "Pod":
		if _, is := s.made[o.Metadata.Namespace]; !is {
			return fmt.Errorf("Error from server (NotFound): namespaces %q not found", o.Metadata.Namespace)
		}
		s.made[o.Metadata.Namespace+"/"+o.Metadata.Name] = time.Now()
	}
	return err
}

// deeply waits for the deep condition only.
func deeply(t *testing.T, e *Engine, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	conditions := e.Conditions(engine.CheckOptions{Deep: true})
	_, err := check.Await(ctx, conditions[len(conditions)-1:], nil)
	return err
}

// A slow and healthy cluster passes the first probe, also while another check runs.
func TestCheckPodNetworkSlowCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{t: t, took: 25 * time.Second, made: map[string]time.Time{
			"nixbench-check-old": time.Now().Add(-time.Hour), "nixbench-check-young": time.Now().Add(-time.Minute),
		}}
		var looking sync.WaitGroup
		for range 2 {
			looking.Go(func() {
				if err := deeply(t, s.engine(), 3*time.Minute); err != nil {
					t.Error(err)
				}
			})
		}
		looking.Wait()
		if len(s.all) != 2 || s.all[0] == s.all[1] {
			t.Errorf("it took %d looks: %v", len(s.all), s.all)
		}
		if _, young := s.made["nixbench-check-young"]; len(s.made) != 1 || !young {
			t.Errorf("namespaces that another check may use must be the only ones left: %v", s.made)
		}
	})
}

func TestCheckPodNetworkFails(t *testing.T) {
	for _, limit := range []time.Duration{3 * time.Minute, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := &slow{t: t, sick: "server", made: map[string]time.Time{}}
			if err := deeply(t, s.engine(), limit); err == nil || !strings.Contains(err.Error(), "the server on w-1: the pod is Pending") {
				t.Error(err)
			}
			if len(s.made) > 0 {
				t.Errorf("left: %v", s.made)
			}
		})
	}
}
