package kubernetes

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// iptablesRules is the output of `iptables -S`. The rule in the last line contains shell syntax.
const iptablesRules = `-P FORWARD ACCEPT
-N KUBE-FORWARD
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -d 10.96.0.0/16 -m comment --comment nixbench-services -j DROP
-A OUTPUT -d 10.96.0.0/16 -m comment --comment nixbench-services -j DROP
-A OUTPUT -d 10.97.0.0/16 -m comment --comment nixbench-services-of-others -j DROP
-A OUTPUT -d 10.0.0.1/32 -p tcp -m tcp --dport 6443 -m comment --comment "nixbench: until the API is back" -j DNAT --to-destination 10.0.0.2:6443
-A OUTPUT -m comment --comment nixbench-services -m comment --comment "$(touch evaluated)\"; touch evaluated" -j $(touch${IFS}evaluated)
`

// TestDeleteRules checks which rules delete_rules deletes, and that it evaluates nothing of them.
func TestDeleteRules(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("rules", iptablesRules)
	write("iptables", `#!/bin/bash
case "$*" in *-S*) exec cat rules ;; esac
printf '[%s]' "$@"
echo
`)
	library, err := filepath.Abs("../../modules/kubernetes/scripts/library/rules.sh")
	if err != nil {
		t.Fatal(err)
	}
	run := func(table, comment string) string {
		t.Helper()
		cmd := exec.Command("bash", "-uc", `. "$1" && delete_rules "$2" "$3"`, "bash", library, table, comment)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("delete_rules: %v\n%s", err, out)
		}
		return string(out)
	}

	got := strings.Split(run("filter", "nixbench-services"), "\n")
	want := []string{
		"[-w][-t][filter][-D][FORWARD][-d][10.96.0.0/16][-m][comment][--comment][nixbench-services][-j][DROP]",
		"[-w][-t][filter][-D][OUTPUT][-d][10.96.0.0/16][-m][comment][--comment][nixbench-services][-j][DROP]",
	}
	if len(got) != 4 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("deleted:\n%s\nwant\n%s\nand the rule with shell syntax", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if out := run("nat", "nixbench: until the API is back"); out !=
		"[-w][-t][nat][-D][OUTPUT][-d][10.0.0.1/32][-p][tcp][-m][tcp][--dport][6443][-m][comment][--comment][nixbench: until the API is back][-j][DNAT][--to-destination][10.0.0.2:6443]\n" {
		t.Errorf("deleted: %s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "evaluated")); err == nil {
		t.Error("a rule was evaluated by the shell")
	}
}

// TestAnnotateNode checks that annotate_cri_socket waits until the kubelet has registered the node, and that any other
// error is a failure at once.
func TestAnnotateNode(t *testing.T) {
	library, err := filepath.Abs("../../modules/kubernetes/scripts/library")
	if err != nil {
		t.Fatal(err)
	}
	for reply, want := range map[string]string{
		`Error from server (NotFound): nodes "w-1" not found`: "3 calls, exit status 0",
		"Error from server (Forbidden): not this node":        "1 calls, exit status 1",
	} {
		dir := t.TempDir()
		kubectl := `#!/bin/sh
case "$*" in *annotate*) echo >>calls; [ "$(wc -l <calls)" -ge 3 ] || { echo "$REPLY" >&2; exit 1; } ;; esac
`
		if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("bash", "-c", `. "$1/progress.sh"; . "$1/join.sh"; records=. work=. attempt=1 phase= last_report= progress=log
annotate_cri_socket 2>&1
status=$?; echo "$(wc -l <calls) calls, exit status $status" >result`, "bash", library)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "REPLY="+reply, "CRI_SOCKET=unix:///socket", "node_name=w-1", "JOIN_TOKEN=/none")
		out, err := cmd.CombinedOutput()
		got, _ := os.ReadFile(filepath.Join(dir, "result"))
		if strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %q, want %q: %v\n%s", reply, got, want, err, out)
		}
	}
}

// TestJoinConfiguration checks what kubeadm gets: to join, the kubeconfig of nixbench with the address of the API server, or
// the hive's token; to create a cluster, a token that is valid for a second, or the hive's token.
func TestJoinConfiguration(t *testing.T) {
	scripts, err := filepath.Abs("../../modules/kubernetes/scripts")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, token, discovery, want string }{
		{"nixbench's", "", `{"file":{"kubeConfigPath":"join.conf"}}`, `{"file":{"kubeConfigPath":"join.conf"}} https://10.0.0.9:6443 [{"ttl":"1s"}]`},
		{"a token", "abcdef.0123456789abcdef", `{"bootstrapToken":{"apiServerEndpoint":"lb:6443"}}`,
			`{"bootstrapToken":{"apiServerEndpoint":"10.0.0.1:6443","token":"abcdef.0123456789abcdef"}}  [{"token":"abcdef.0123456789abcdef","ttl":"1h","description":"nixbench"}]`},
	} {
		dir := t.TempDir()
		path := func(name string) string { return filepath.Join(dir, name) }
		tokenFile := ""
		for name, text := range map[string]string{
			"token":       c.token + "\n",
			"credentials": `{"clusters":[{"cluster":{"server":""}}]}`,
			"node.json":   `{"name":"cp-2","address":"10.0.0.2"}`,
			"template":    `{"join":{"controlPlane":{"localAPIEndpoint":{"bindPort":6443}},"discovery":` + c.discovery + `},"init":{"localAPIEndpoint":{}}}`,
			"kubeadm":     "#!/bin/bash\n[ \"$2\" = phase ] || cp \"${@: -1}\" joined\n",
			"curl":        "#!/bin/bash\necho '{}'\n",
		} {
			if err := os.WriteFile(path(name), []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if c.token != "" {
			tokenFile = path("token")
		}
		cmd := exec.Command("bash", "-c", `for part in progress kubeadm join; do . "$1/$part.sh"; done
work=$PWD/run records=$PWD/records progress=log
start_program 2>/dev/null
join_cluster 10.0.0.1 || exit
echo "$(jq -c .discovery joined) $(jq -r '.clusters[0].cluster.server' run/join.conf 2>/dev/null) $(jq -sc '.[0].bootstrapTokens' <(sed '/^---$/d' "$(write_kubeadm_config init)"))" >result`, "bash", scripts+"/library")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "NODE_FILE="+path("node.json"), "TEMPLATE="+path("template"), "DOCUMENTS="+scripts+"/documents.jq",
			"JOIN_TOKEN="+tokenFile, "JOIN_CONFIG="+path("credentials"), "REGISTRATION=", "TOKEN_TTL=1h", "ENDPOINT=10.0.0.9", "PORT=6443")
		out, err := cmd.CombinedOutput()
		got, _ := os.ReadFile(path("result"))
		if strings.TrimSpace(string(got)) != c.want {
			t.Errorf("%s: %s, want %s: %v\n%s", c.name, got, c.want, err, out)
		}
	}
}

// TestShellcheck checks all shell scripts of systems with the Kubernetes modules, as they are built. The scripts are
// discovered in the store: a new one is checked without being added to a list.
func TestShellcheck(t *testing.T) {
	systems := evaluate(t).Systems
	nix := func(program string, args ...string) []string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
		var diag strings.Builder
		cmd.Stderr = &diag
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", program, err, diag.String())
		}
		return strings.Fields(string(out))
	}
	paths := nix("nix-store", append([]string{"--query", "--requisites"}, nix("nix-store", append([]string{"--realise"}, systems...)...)...)...)

	var scripts []string
	for _, path := range paths {
		if strings.Contains(path, "-nixos-system-") {
			continue // what NixOS generates for a system, not the modules
		}
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() && isShellScript(t, file) {
				scripts = append(scripts, file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bootstrap", "before-switch", "certificates", "reset"} {
		if !slices.ContainsFunc(scripts, func(file string) bool { return strings.HasSuffix(file, "nixbench-kubernetes-"+name) }) {
			t.Errorf("the systems have no script nixbench-kubernetes-%s", name)
		}
	}
	for _, name := range []string{"kubelet-start", "nixbench-pod-network"} {
		if !slices.ContainsFunc(scripts, func(file string) bool { return strings.HasSuffix(file, "-"+name) }) {
			t.Errorf("the systems have no script %s", name)
		}
	}
	if problems := fixture.Shellcheck(t, "", append([]string{"--external-sources", "--check-sourced"}, scripts...)...); problems != "" {
		t.Errorf("shellcheck:\n%s", problems)
	}

	// The check fails for a script with an error, also in the file that it sources.
	dir := t.TempDir()
	library, program := filepath.Join(dir, "library"), filepath.Join(dir, "program")
	for file, text := range map[string]string{
		library: "# shellcheck shell=bash\nlist() { ls $1; }\n",
		program: "#!/bin/bash\nsource " + library + "\nlist x; [ $# = 0 ] || rm $2\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if problems := fixture.Shellcheck(t, "", "--external-sources", "--check-sourced", program); !isShellScript(t, program) || strings.Count(problems, "SC2086") != 2 {
		t.Errorf("a script with two unquoted words: %q", problems)
	}
}

var shellScript = regexp.MustCompile(`^#! ?\S*(/|env )(ba|da)?sh\b`)

func isShellScript(t *testing.T, file string) bool {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	head := make([]byte, 200)
	n, _ := io.ReadFull(f, head)
	return shellScript.Match(head[:n])
}

// TestKubeletFlags checks that a kubelet of 1.35 or later does not get a flag of kubeadm 1.34 that it does not accept.
func TestKubeletFlags(t *testing.T) {
	fixture.Require(t, "jq")
	dir := t.TempDir()
	node := filepath.Join(dir, "node.json")
	if err := os.WriteFile(node, []byte(`{"name": "worker-1", "address": "192.168.222.20"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../modules/kubernetes/scripts/kubelet.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", "delete_rules() { :; }\nset -- echo --v=1\n"+string(script))
	cmd.Env = append(os.Environ(), "NODE_FILE="+node, "CONFIG=/c.json", "SERVICES=", "REGISTRATION="+filepath.Join(dir, "none"),
		"KUBELET_KUBEADM_ARGS=--container-runtime-endpoint=unix:///x --pod-infra-container-image=registry.k8s.io/pause:3.10.1 --register-with-taints=a")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "--container-runtime-endpoint=unix:///x --register-with-taints=a --config=/c.json"
	if got := string(out); !strings.Contains(got, want) || strings.Contains(got, "pod-infra-container-image") || !strings.HasSuffix(got, " --v=1\n") {
		t.Errorf("the kubelet's arguments are %s, want %s in them", got, want)
	}
}
