package kubernetes

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// processWatch records the command lines and environments of all processes until it is stopped.
// The lab's machines are containers, so processes of nodes are among them.
type processWatch struct {
	mu   sync.Mutex
	seen map[string]bool
	quit chan struct{}
	done sync.WaitGroup
}

func watchProcesses() *processWatch {
	w := &processWatch{seen: map[string]bool{}, quit: make(chan struct{})}
	w.done.Go(func() {
		for {
			select {
			case <-w.quit:
				return
			case <-time.After(20 * time.Millisecond):
			}
			lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			environs, _ := filepath.Glob("/proc/[0-9]*/environ")
			for _, f := range append(lines, environs...) {
				if text, _ := os.ReadFile(f); len(text) > 0 {
					w.mu.Lock()
					w.seen[string(text)] = true
					w.mu.Unlock()
				}
			}
		}
	})
	return w
}

// stop returns all that was recorded.
func (w *processWatch) stop() string {
	close(w.quit)
	w.done.Wait()
	return strings.Join(slices.Collect(maps.Keys(w.seen)), "\n")
}

// readSecrets returns text of each generated secret that must not be found elsewhere, by name, such as the first line of a
// key in PEM. stored has the same secrets in the
// encoding of the files below .nixbench/bench/secrets.
func (g *guestCluster) readSecrets() (secrets map[string]string, stored []string) {
	g.Helper()
	out := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(g.dir, ".nixbench/bench/secrets/generated/*.json"))
	for _, file := range files {
		var s struct{ Parts map[string][]byte }
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &s)
		}
		if err != nil {
			g.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		for part, content := range s.Parts {
			if part != "certificate" && part != "public" {
				encoded := base64.StdEncoding.EncodeToString(content)
				stored = append(stored, encoded[max(0, len(encoded)/2-30):len(encoded)/2])
			}
		}
		switch {
		case s.Parts["keys"] != nil:
			out[name] = strings.Fields(string(s.Parts["keys"]))[1]
		case s.Parts["key"] != nil:
			out[name] = strings.Split(string(s.Parts["key"]), "\n")[1]
		case s.Parts["private"] != nil:
			out[name] = strings.Split(string(s.Parts["private"]), "\n")[1]
		}
	}
	if len(out) != 5 {
		g.Fatalf("secrets: %v", slices.Sorted(maps.Keys(out)))
	}
	return out, stored
}

// checkNoSecretLeaked searches for secrets after an apply: in process lists, in the output, in the
// store, in the state folder, in logs and files of the nodes, and in etcd. Each search must also
// find a text that is known to be there. before are the store's paths before the apply, processes
// the command lines and environments during it.
func (g *guestCluster) checkNoSecretLeaked(before []string, processes string, nodes ...string) {
	g.Helper()
	secrets, stored := g.readSecrets()
	texts := append(stored, slices.Collect(maps.Values(secrets))...)
	named := func(where, text string) {
		for name, secret := range secrets {
			if strings.Contains(text, secret) {
				g.Errorf("%s is in %s", name, where)
			}
		}
	}

	// On this machine.
	for where, c := range map[string]struct{ text, control string }{
		"process lists": {processes, "kubeadm\x00init"}, "the output of commands": {g.output.String(), "generation 1"},
	} {
		named(where, c.text)
		if !strings.Contains(c.text, c.control) {
			g.Errorf("the search of %s does not find %q", where, c.control)
		}
	}
	fresh := slices.DeleteFunc(fixture.StorePaths(), func(p string) bool { return slices.Contains(before, p) })
	if found := fixture.FilesWith(g, texts, fresh...); len(found) > 0 {
		g.Errorf("secrets are in the store: %v", found)
	}
	if found := fixture.FilesWith(g, []string{"nixbench-kubernetes"}, fresh...); len(found) == 0 {
		g.Errorf("the search of the store's %d new paths finds nothing", len(fresh))
	}
	records := slices.DeleteFunc(fixture.FilesWith(g, texts, g.dir), func(p string) bool { return strings.Contains(p, "/.nixbench/bench/secrets/") })
	if len(records) > 0 {
		g.Errorf("secrets are in %v", records)
	}
	if len(fixture.FilesWith(g, []string{"cp-1"}, filepath.Join(g.dir, ".nixbench/bench/runs"))) < 3 || len(fixture.FilesWith(g, texts, filepath.Join(g.dir, ".nixbench/bench/secrets"))) != len(secrets) {
		g.Error("the search of the state does not find the nodes' names and the stored secrets")
	}

	// On the nodes. kubeadm's own copies of the keys, in /etc/kubernetes/pki, are excluded.
	for _, node := range nodes {
		search := func(patterns ...string) string {
			// The patterns come from standard input, because the search covers arguments of processes.
			out, err := g.tryOnWithInput(node, strings.Join(patterns, "\n")+"\n", `cat > /run/patterns
grep -rlF -f /run/patterns /nix/store /var/log /var/lib/nixbench /var/lib/kubelet/*.* /run/nixbench/*.json /run/nixbench/kubernetes /etc /run/systemd 2>/dev/null | grep -v '^/etc/kubernetes/pki/'
journalctl -q --no-pager | grep -F -f /run/patterns | cut -c 1-300 | head -n 5
ps -eo args | grep -F -f /run/patterns
rm /run/patterns`)
			if err != nil {
				g.Fatalf("%s: %v\n%s", node, err, out)
			}
			return out
		}
		if found := search(texts...); found != "" {
			g.Errorf("%s: secrets are in\n%s", node, found)
		}
		control := search("/run/nixbench/secrets/join.conf", "Make the node a part of the Kubernetes cluster", "--hostname-override="+node)
		for _, want := range []string{"/nix/store/", "Make the node a part of the Kubernetes cluster", "--hostname-override="} {
			if !strings.Contains(control, want) {
				g.Errorf("%s: the search does not find %q", node, want)
			}
		}
	}
	if got := g.runOn("cp-1", admin+"create secret generic probe --from-literal=a=b >/dev/null; "+etcdctl+"get --print-value-only /registry/secrets/default/probe | head -c 24 | tr -d '\\0'"); got != "k8s:enc:secretbox:v1:key" {
		g.Errorf("etcd stores secrets as %q", got)
	}
}
