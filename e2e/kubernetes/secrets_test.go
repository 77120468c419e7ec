package kubernetes

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// overheard looks at the command lines and environments of all processes until it is
// stopped. The lab's machines are containers, so those of nodes are among them.
type overheard struct {
	mu   sync.Mutex
	seen map[string]bool
	stop chan struct{}
	over sync.WaitGroup
}

func overhear() *overheard {
	o := &overheard{seen: map[string]bool{}, stop: make(chan struct{})}
	o.over.Go(func() {
		for {
			select {
			case <-o.stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			environs, _ := filepath.Glob("/proc/[0-9]*/environ")
			for _, f := range append(lines, environs...) {
				if text, _ := os.ReadFile(f); len(text) > 0 {
					o.mu.Lock()
					o.seen[string(text)] = true
					o.mu.Unlock()
				}
			}
		}
	})
	return o
}

func (o *overheard) end() string {
	close(o.stop)
	o.over.Wait()
	return strings.Join(slices.Collect(maps.Keys(o.seen)), "\n")
}

// secrets are what must not be found anywhere else, by name: of a token its second half,
// of keys in PEM their first line. stored are the same as the vault's files have them.
func (g *ground) secrets() (secrets map[string]string, stored []string) {
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
		case s.Parts["text"] != nil:
			_, out[name], _ = strings.Cut(string(s.Parts["text"]), ".")
		case s.Parts["keys"] != nil:
			out[name] = strings.Fields(string(s.Parts["keys"]))[1]
		case s.Parts["key"] != nil:
			out[name] = strings.Split(string(s.Parts["key"]), "\n")[1]
		case s.Parts["private"] != nil:
			out[name] = strings.Split(string(s.Parts["private"]), "\n")[1]
		}
	}
	if len(out) != 6 {
		g.Fatalf("secrets: %v", slices.Sorted(maps.Keys(out)))
	}
	return out, stored
}

func storePaths(t testing.TB) []string {
	paths, err := filepath.Glob("/nix/store/*")
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// filesWith are files below roots in which one of the texts is.
func filesWith(t testing.TB, texts []string, roots ...string) []string {
	t.Helper()
	var found []string
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			if slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(content, []byte(text)) }) {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// staySecret searches everything that an apply has left. before are the store's paths from
// before it, processes what was seen of them meanwhile.
func (g *ground) staySecret(before []string, processes string, nodes ...string) {
	g.Helper()
	secrets, stored := g.secrets()
	texts := append(stored, slices.Collect(maps.Values(secrets))...)
	named := func(where, text string) {
		for name, secret := range secrets {
			if strings.Contains(text, secret) {
				g.Errorf("%s is in %s", name, where)
			}
		}
	}

	// Here. Each search is shown to find what is there.
	for where, c := range map[string]struct{ text, control string }{
		"process lists": {processes, "kubeadm\x00init"}, "what commands print": {g.said.String(), "generation 1"},
	} {
		named(where, c.text)
		if !strings.Contains(c.text, c.control) {
			g.Errorf("the search of %s does not find %q", where, c.control)
		}
	}
	fresh := slices.DeleteFunc(storePaths(g), func(p string) bool { return slices.Contains(before, p) })
	if found := filesWith(g, texts, fresh...); len(found) > 0 {
		g.Errorf("secrets are in the store: %v", found)
	}
	if found := filesWith(g, []string{"nixbench-kubernetes"}, fresh...); len(found) == 0 {
		g.Errorf("the search of the store's %d new paths finds nothing", len(fresh))
	}
	records := slices.DeleteFunc(filesWith(g, texts, g.dir), func(p string) bool { return strings.Contains(p, "/.nixbench/bench/secrets/") })
	if len(records) > 0 {
		g.Errorf("secrets are in %v", records)
	}
	if len(filesWith(g, []string{"cp-1"}, filepath.Join(g.dir, ".nixbench/bench/runs"))) < 3 || len(filesWith(g, texts, filepath.Join(g.dir, ".nixbench/bench/secrets"))) != len(secrets) {
		g.Error("the search of the state does not find what is there")
	}

	// There. kubeadm's own copies of the keys are where they belong.
	for _, node := range nodes {
		search := func(patterns ...string) string {
			// Not as an argument: this search looks at arguments, too.
			out, err := g.tell(node, strings.Join(patterns, "\n")+"\n", `cat > /run/patterns
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
		control := search("/run/nixbench/secrets/join-token", "Make the node a part of the Kubernetes cluster", "--hostname-override="+node)
		for _, want := range []string{"/nix/store/", "Make the node a part of the Kubernetes cluster", "--hostname-override="} {
			if !strings.Contains(control, want) {
				g.Errorf("%s: the search does not find %q", node, want)
			}
		}
		if got := g.on(node, "cat /run/nixbench/secrets/join-token"); !strings.Contains(got, secrets["join-token"]) {
			g.Errorf("%s: the token is not where it belongs", node)
		}
	}
	if got := g.on("cp-1", etcdctl+"get --print-value-only --prefix /registry/secrets/kube-system/bootstrap-token | head -c 24 | tr -d '\\0'"); got != "k8s:enc:secretbox:v1:key" {
		g.Errorf("etcd stores secrets as %q", got)
	}
}

// tokenWorks tells whether the API takes a token for one that lets nodes join.
func (g *ground) tokenWorks(token string) bool {
	g.Helper()
	out, err := g.ask("cp-1", "curl -sk --noproxy '*' -H 'Authorization: Bearer "+token+"' https://127.0.0.1:6443/api/v1/nodes | head -c 400")
	if err != nil {
		g.Fatal(err)
	}
	switch {
	case strings.Contains(out, `system:bootstrap:`): // known, and forbidden to look at nodes
		return true
	case strings.Contains(out, "Unauthorized"):
		return false
	}
	g.Fatalf("the API says %s", out)
	return false
}
