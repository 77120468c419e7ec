package kubernetescmd

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// requireKubectl puts kubectl on PATH: that of this machine, or that of the lab.
func requireKubectl(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("kubectl"); err == nil {
		return
	}
	cache, _ := os.UserCacheDir()
	if built, _ := filepath.Glob(filepath.Join(cache, "nixbench/kube/parts-v*/root/usr/bin/kubectl")); len(built) > 0 {
		t.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Dir(built[0]))
		return
	}
	t.Skip("there is no kubectl; make kube builds one")
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// accessTo returns access to a cluster called hive with this authority.
func accessTo(t *testing.T, authority string) *kubernetes.Access {
	t.Helper()
	e := kubernetes.New(engine.Cluster{Name: "hive", Members: []engine.Member{{Node: "cp-1", Engine: nixeval.Engine{Role: kubernetes.ControlPlane}}},
		Run: func(context.Context, string, io.Reader, ...string) ([]byte, error) {
			return fmt.Appendf(nil, `{"clusters":[{"name":"k","cluster":{"server":"https://192.168.222.10:6443","certificate-authority-data":"%s"}}],
				"users":[{"name":"a","user":{"client-certificate-data":"%s","client-key-data":"%s"}}]}`, encoded(authority), encoded("ours"), encoded("our key")), nil
		}})
	a, err := e.ReadAdminAccess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// userConfig returns a kubeconfig with one cluster and its context, which is the current one.
func userConfig(cluster, user, context, authority string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: %[3]s
clusters:
- name: %[1]s
  cluster: { server: "https://theirs:6443", certificate-authority-data: %[4]s }
users:
- name: %[2]s
  user: { client-certificate: cert.pem, client-key: key.pem }
contexts:
- name: %[3]s
  context: { cluster: %[1]s, user: %[2]s, namespace: mine }
`, cluster, user, context, encoded(authority))
}

func TestMergeKubeconfig(t *testing.T) {
	requireKubectl(t)
	for name, test := range map[string]struct {
		before  string // empty: there is no file
		called  string
		refused string
		current string
	}{
		"there is none":            {current: "hive"},
		"theirs are others":        {before: userConfig("prod", "me", "work", "other"), current: "work"},
		"the same cluster":         {before: userConfig("hive", "hive-admin", "hive", "CA"), current: "hive"},
		"the same, by an alias":    {before: userConfig("hive", "hive-admin", "short", "CA"), current: "short"},
		"another cluster":          {before: userConfig("hive", "hive-admin", "hive", "other"), refused: "another cluster hive, at https://theirs:6443"},
		"another context":          {before: userConfig("prod", "me", "hive", "other"), refused: "a context hive of another cluster, prod"},
		"another user":             {before: userConfig("prod", "hive-admin", "work", "other"), refused: "a user hive-admin of another context, work"},
		"another cluster, renamed": {before: userConfig("hive", "hive-admin", "hive", "other"), called: "hive2", current: "hive"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("HOME", dir)
			t.Setenv("KUBECONFIG", "")
			access := accessTo(t, "CA")
			if test.called != "" {
				access.Cluster = test.called
			}
			config, err := access.Kubeconfig()
			if err != nil {
				t.Fatal(err)
			}
			ours, link, file := filepath.Join(dir, "ours"), filepath.Join(dir, ".kube/config"), filepath.Join(dir, "dotfiles/config")
			if err := os.WriteFile(ours, config, 0o600); err != nil {
				t.Fatal(err)
			}
			if test.before == "" {
				file = link
			} else { // a link, as for users who keep their configuration in git
				for _, d := range []string{filepath.Dir(link), filepath.Dir(file)} {
					if err := os.Mkdir(d, 0o700); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.WriteFile(file, []byte(test.before), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(file, link); err != nil {
					t.Fatal(err)
				}
			}
			_, err = mergeKubeconfig(t.Context(), ours, access)
			if test.refused != "" {
				if failure.KindOf(err) != failure.Usage || !strings.Contains(err.Error(), test.refused) || !strings.Contains(failure.Hint(err), "--context NAME") {
					t.Errorf("%v", err)
				}
				if after, err := os.ReadFile(file); err != nil || string(after) != test.before {
					t.Errorf("it was changed: %v\n%s", err, after)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Lstat(link); err != nil || (info.Mode()&os.ModeSymlink != 0) != (test.before != "") {
				t.Errorf("the link: %v, %v", info.Mode(), err)
			}
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			if bak, err := os.ReadFile(file + ".bak"); test.before != "" && (err != nil || string(bak) != test.before) {
				t.Errorf("the backup: %v\n%s", err, bak)
			}
			out, err := exec.Command("kubectl", "config", "view", "--raw", "-o", "json").Output()
			if err != nil {
				t.Fatal(err)
			}
			if current := gjson.GetBytes(out, "current-context").String(); current != test.current {
				t.Errorf("current context is %s, want %s", current, test.current)
			}
			at := `contexts.#(name=="` + access.Cluster + `").context.`
			cluster, user := gjson.GetBytes(out, at+"cluster").String(), gjson.GetBytes(out, at+"user").String()
			if server := gjson.GetBytes(out, `clusters.#(name=="`+cluster+`").cluster.server`).String(); server != "https://192.168.222.10:6443" {
				t.Errorf("our server is %q", server)
			}
			if key := gjson.GetBytes(out, `users.#(name=="`+user+`").user.client-key-data`).String(); key != encoded("our key") {
				t.Errorf("our key is %q", key)
			}
			if test.before != "" && cluster != "hive" {
				// The user's own entries are unchanged.
				if data, _ := os.ReadFile(file); strings.Count(string(data), "cert.pem") == 0 {
					t.Errorf("the user's certificate is no longer a file:\n%s", data)
				}
			}
		})
	}
}

// A dangling link is not replaced.
func TestMergeIntoDanglingLink(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	if err := os.Symlink(filepath.Join(dir, "absent"), file); err != nil {
		t.Fatal(err)
	}
	if err := replaceConfig(file, nil); err == nil || !strings.Contains(err.Error(), "a link to a missing file") {
		t.Error(err)
	}
}
