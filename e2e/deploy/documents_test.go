package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
	"github.com/nixbench/nixbench/e2e/transcript"
)

// The shell commands in docs/deploying.md and docs/failures.md, run on machines.
func TestDocuments(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 3, "--names", "web-1,web-2,db"))
	db := "" // the health checks of db, which does not pass them, so that its switch is rolled back
	hive := func(web, key string) {
		text := "db"
		if db != "" {
			text = "other"
		}
		s.writeHive(`web-1 = { imports = [ (which "web") ]; ` + web + key + ` }; web-2 = { imports = [ (which "web") ]; ` + web + ` }; db = { imports = [ (which "` + text + `") ]; ` + db + ` };`)
	}
	hive("", `systemd.services.hello = { script = "echo hello"; };`) // whose packages the document's nodes have, too
	s.run(0, "apply")
	s.run(0, "reboot", "--yes") // so that the booted system is the running one
	const big = `boot.kernelParams = [ "quiet" ]; environment.etc."big".text = builtins.concatStringsSep "\n" (builtins.genList (i: "line ${toString i}") 200000);`
	const small = `deployment.keys.password.text = "secret"; systemd.services.hello = { script = "echo hello"; };`
	hive(big, small)

	key := filepath.Join(filepath.Dir(s.dir), "home", ".ssh", "id_ed25519")
	if err := os.Mkdir(filepath.Dir(key), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.env = append(s.env, "SSH_CONFIG_FILE="+s.l.SSHConfig) // a plan does not contain deployment.sshOptions
	shell := s.shell()
	done := 0
	for _, file := range []string{"deploying.md", "failures.md"} {
		for _, step := range transcript.Read(t, filepath.Join("../../docs", file)) {
			if step.Nix != "" && step.Title == "Health checks" {
				db = step.Nix
				hive(big, small)
			}
			if step.Nix != "" {
				continue
			}
			step.Command = strings.Replace(step.Command, " NODE", " web-1", 1)
			shell.Do(step)
			done++
		}
	}
	if done < 7 {
		t.Errorf("the documents have only %d commands, want at least 7", done)
	}
	db = ""
	hive(big, small)
	s.says(s.run(0, "plan"), "unchanged")
}

// shell returns a shell that runs the commands of documents in the hive's folder and in the lab's
// network.
func (s *sandbox) shell() *transcript.Shell {
	path := "PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH")
	return &transcript.Shell{TB: s.TB, Dir: s.dir, Command: s.l.Command, Env: append(slices.Clone(s.env), path)}
}
