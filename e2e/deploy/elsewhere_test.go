package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// Plans are applied in a folder without the hive, with a nix that evaluates nothing, if the user accepts their signer. Other plans are
// refused before anything connects to a node.
func TestPlanElsewhere(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 2))
	other := newSandbox(t, s.l)
	realNix, err := exec.LookPath("nix")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	other.env = append(other.env, "PATH="+bin+":"+os.Getenv("PATH"), "SSH_CONFIG_FILE="+s.l.SSHConfig)
	for name, text := range map[string]string{
		filepath.Join(bin, "nix"):          "#!/bin/sh\ncase \" $* \" in *' eval '*) echo 'this nix evaluates nothing' >&2; exit 1;; esac\nexec " + realNix + " \"$@\"\n",
		filepath.Join(other.dir, "secret"): "from a file",
	} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ssh := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ssh-keygen", args...).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	keys := t.TempDir()
	for _, name := range []string{"alice", "mallory"} {
		ssh("-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(keys, name))
	}
	hive := func(text string) {
		s.writeHive(fmt.Sprintf(`
  m1 = { imports = [ (which "%[1]s") ]; deployment.keys.token.keyFile = "%[2]s/secret"; deployment.healthChecks.ssh.tcp = ":22"; };
  m2 = which "%[1]s";`, text, other.dir))
	}
	// bring moves a plan, signed by somebody unless the name is empty.
	bring := func(plan, signer string) {
		t.Helper()
		to := filepath.Join(other.dir, plan)
		_ = os.Remove(to + ".sig")
		data, err := os.ReadFile(filepath.Join(s.dir, plan))
		if err == nil {
			err = os.WriteFile(to, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if signer != "" {
			ssh("-q", "-Y", "sign", "-n", "nixbench-plan", "-f", filepath.Join(keys, signer), to)
		}
	}

	hive("one")
	s.says(s.run(0, "build", "--out", "one.plan"), "note: the plan is in one.plan", "note: deployment.sshOptions are not in the plan")
	bring("one.plan", "alice")
	before := s.countLogins("m1")
	s.says(other.run(2, "apply", "one.plan"), "error: plan one.plan: there is no file ", "allowed_signers\" with the keys that may sign plans\n")
	public, err := os.ReadFile(filepath.Join(keys, "alice.pub"))
	if err == nil {
		err = os.WriteFile(filepath.Join(other.dir, "signers"), append([]byte("a line that is no signer\nalice@example.org namespaces=\"nixbench-plan\" "), public...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	apply := func(code int, plan string, args ...string) runResult {
		t.Helper()
		return other.run(code, append([]string{"apply", plan, "--allowed-signers", "signers", "--timeout", "settle=0s"}, args...)...)
	}
	bring("one.plan", "mallory")
	s.says(apply(2, "one.plan"), "error: plan one.plan: the signature one.plan.sig is not valid: no key in signers has made it")
	bring("one.plan", "")
	s.says(apply(2, "one.plan"), `error: plan one.plan: its hive is "`+s.dir+`/hive.nix", which is not the one here, and there is no signature one.plan.sig`, "ssh-keygen -Y sign -n nixbench-plan -f KEY one.plan signs the plan; --unsigned ")
	bring("one.plan", "alice")
	data, err := os.ReadFile(filepath.Join(other.dir, "one.plan"))
	if err == nil {
		err = os.WriteFile(filepath.Join(other.dir, "one.plan"), append(data, '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.says(apply(2, "one.plan"), "error: plan one.plan: the signature one.plan.sig is not valid: ssh-keygen: ")
	if after := s.countLogins("m1"); after != before+1 { // countLogins logs in itself
		t.Errorf("%d logins of plans that are refused", after-before-1)
	}

	// What has come with the plan is not used: neither a state folder nor the configuration of git.
	victim := t.TempDir()
	out, err := exec.Command("sh", "-ec", `cd "$1"; mkdir -m 700 .nixbench .nixbench/hive; ln -s "$2" .nixbench/hive/gcroots; git init -q; git add signers
		git config core.fsmonitor 'touch "'"$2"'/git"; false'`, "sh", other.dir, victim).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	bring("one.plan", "alice")
	s.says(apply(0, "one.plan", "--on", "m1"), "note: alice@example.org has signed the plan one.plan\n", "1 switched")
	s.checkWhich("m1=one")
	if got := s.runOn("m1", "cat /run/keys/token"); got != "from a file" {
		t.Errorf("the key is %q", got)
	}
	s.says(apply(0, "one.plan"), "1 switched, 1 unchanged")
	s.checkWhich("m1=one", "m2=one")

	// A plan for which the nodes were asked becomes outdated, also without the hive.
	hive("two")
	s.run(0, "plan", "--out", "two.plan")
	hive("three")
	s.run(0, "plan", "--out", "three.plan", "--on", "m2", "--no-keys")
	bring("two.plan", "")
	bring("three.plan", "alice")
	s.says(apply(2, "three.plan", "--no-drain"), "apply three.plan: --no-drain and a plan exclude each other")
	s.says(apply(0, "three.plan"), "1 switched")
	s.says(apply(0, "three.plan"), "note: the plan three.plan was applied already")
	s.says(apply(12, "two.plan", "--unsigned"), "error: plan two.plan of ", "m2: it runs another system now: ")
	s.checkWhich("m1=one", "m2=three")
	if got, err := os.ReadDir(victim); err != nil || len(got) > 0 {
		t.Errorf("a folder that the plan has brought was used: %v, %v", got, err)
	}

	// One system is deployed without an evaluation of systems.
	got := s.run(0, "apply", "m2="+s.runOn("m1", "readlink /run/current-system"), "--timeout", "settle=0s")
	s.saysNot(got, "evaluate  ")
	s.checkWhich("m1=one", "m2=one")
	s.checkNothingLeft("m1", "m2")
}
