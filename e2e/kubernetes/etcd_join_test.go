package kubernetes

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// kubeadmStandIn joins etcd as kubeadm 1.34 does. The first promotion ends with an error: $PROMOTION is lost if etcd has
// promoted the member nevertheless. Like kubeadm, it promotes a voting member again, and rejects unknown phases.
const kubeadmStandIn = `#!/bin/bash
phases="preflight control-plane-prepare kubelet-start etcd-join control-plane-join control-plane-join/mark-control-plane wait-control-plane"
[ "$OLD_PHASE" = no ] || phases="$phases control-plane-join/etcd"
case "$*" in
'join phase preflight --config '*) exit ;;
'join --help') for phase in $phases; do case $phase in */*) echo "  /${phase#*/}  text" ;; *) echo "$phase  text" ;; esac; done; exit ;;
esac
skipped=$(jq -r '.skipPhases // [] | join(" ")' "$3")
for phase in $skipped; do
  case " $phases " in *" $phase "*) ;; *) echo "invalid phase name: $phase" >&2; exit 1 ;; esac
done
echo "skipped: $skipped"
case " $skipped " in *' etcd-join '*) exit ;; esac
mkdir -p "$DIR/etc/kubernetes/manifests"
echo pod >"$DIR/etc/kubernetes/manifests/etcd.yaml"
state=$(cat "$DIR/member" 2>/dev/null)
error='error execution phase etcd-join: error creating local etcd static pod manifest file: '
case $state in
voting) echo "$error"'etcdserver: can only promote a learner member' >&2; exit 1 ;;
learner) echo voting >"$DIR/member"; exit ;;
esac
if [ "$PROMOTION" = lost ]; then echo voting; else echo learner; fi >"$DIR/member"
echo "$error"'context deadline exceeded' >&2
exit 1
`

// etcdctlStandIn prints the members as etcdctl 3.6 does, which omits isLearner for voting members. A learner does not answer.
const etcdctlStandIn = `#!/bin/bash
case "$*" in *' member list -w json') ;; *) echo "unexpected: $*" >&2; exit 1 ;; esac
[ "$(cat "$DIR/member")" = voting ] || { echo 'Error: etcdserver: rpc not supported for learner' >&2; exit 1; }
echo '{"header":{"member_id":2},"members":[{"ID":1,"name":"cp-1","peerURLs":["https://10.0.0.1:2380"]},{"ID":2,"name":"'"$MEMBER"'","peerURLs":["https://10.0.0.2:2380"]}]}'
`

// TestEtcdJoinIsRepeated checks that the node joins when kubeadm has failed after etcd promoted the node's member, and
// that the etcd phase is repeated as long as the member is not a voting member.
func TestEtcdJoinIsRepeated(t *testing.T) {
	fixture.Require(t, "bash", "jq")
	for _, c := range []struct {
		name, promotion, member, oldPhase string
		want                              []string // the last lines
	}{
		{"the answer was lost", "lost", "cp-2", "yes", []string{"skipped: preflight etcd-join control-plane-join/etcd", "joined in attempt 2"}},
		{"kubeadm without the old phase", "lost", "cp-2", "no", []string{"skipped: preflight etcd-join", "joined in attempt 2"}},
		{"the member is still a learner", "refused", "cp-2", "yes", []string{"skipped: preflight", "joined in attempt 2"}},
		{"etcd does not have this node's name", "lost", "cp-3", "yes", []string{"can only promote a learner member", "failed in attempt 3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"bin/kubeadm": kubeadmStandIn,
				"bin/etcdctl": etcdctlStandIn,
				"bin/curl":    "#!/bin/bash\necho jws-kubeconfig-abcdef\n",
				"node.json":   `{ "name": "cp-2", "address": "10.0.0.2" }`,
				"token":       "abcdef.0123456789abcdef\n",
				"template":    `{ "join": { "controlPlane": { "localAPIEndpoint": { "bindPort": 6443 } }, "discovery": { "bootstrapToken": {} } } }`,
			} {
				file := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			var library strings.Builder
			for _, part := range []string{"progress", "kubeadm", "join"} {
				text, err := os.ReadFile("../../modules/kubernetes/scripts/library/" + part + ".sh")
				if err != nil {
					t.Fatal(err)
				}
				library.Write(text)
			}
			here := strings.NewReplacer("/var/lib/nixbench", dir+"/var", "/run/nixbench", dir+"/run", "/etc/kubernetes", dir+"/etc/kubernetes")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-c", here.Replace(library.String())+`
start_program
read_identity
until join_cluster 10.0.0.1; do
  [ "$attempt" -lt 3 ] || { echo "failed in attempt $attempt" >&2; exit 1; }
  attempt=$((attempt + 1))
done
echo "joined in attempt $attempt" >&2`)
			documents, err := filepath.Abs("../../modules/kubernetes/scripts/documents.jq")
			if err != nil {
				t.Fatal(err)
			}
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "DIR="+dir,
				"PROMOTION="+c.promotion, "MEMBER="+c.member, "OLD_PHASE="+c.oldPhase,
				"NODE_FILE="+filepath.Join(dir, "node.json"), "JOIN_TOKEN="+filepath.Join(dir, "token"), "TEMPLATE="+filepath.Join(dir, "template"),
				"DOCUMENTS="+documents, "REGISTRATION=/dev/null", "TOKEN_TTL=1h", "ENDPOINT=10.0.0.1", "PORT=6443")
			out, _ := cmd.CombinedOutput()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			last := lines[max(0, len(lines)-len(c.want)):]
			if !slices.EqualFunc(last, c.want, strings.HasSuffix) {
				t.Errorf("the output does not end with %q:\n%s", c.want, out)
			}
		})
	}
}
