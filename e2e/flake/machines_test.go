package flake

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// An unchanged template of `nix flake init` is deployed to machines by `nix run .#deploy`. The package's
// stand-in runs the real nixbench, and OpenSSH's configuration has the addresses of the hosts.
func TestDeployToMachines(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, 2, lab.WithNames("web", "db"))
	w := newWorld(t)
	w.buildProgram()
	dir := w.initTemplate("existing-machines")
	config := l.Aliases(t, map[string]string{"web.example.org": "web", "db.example.org": "db"})

	deploy := func(code int, want string, args ...string) {
		t.Helper()
		cmd := l.Command(t.Context(), "nix", append([]string{"run", ".#deploy", "--"}, args...)...)
		cmd.Dir, cmd.Env = dir, append(w.env(), "SSH_CONFIG_FILE="+config)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) || cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), want) {
			t.Fatalf("deploy %s: %v, want exit code %d and %q:\n%s", strings.Join(args, " "), err, code, want, out)
		}
	}
	deploy(0, "1 switched", "--on", "@front")
	ask := `for i in {1..50}; do exec 3<>"/dev/tcp/$0/80" && break; sleep 0.1; done; printf 'GET / HTTP/1.0\r\n\r\n' >&3; tail -n 1 <&3`
	if got, err := l.Command(t.Context(), "bash", "-c", ask, l.Machine("web").IP).Output(); string(got) != "Welcome to web.\n" {
		t.Errorf("the web server answers %q, %v", got, err)
	}
	if got := l.Run(t, "db", "ls /nix/var/nix/profiles"); strings.Contains(got, "system") {
		t.Errorf("db was deployed, too: %s", got)
	}
	deploy(0, "1 switched, 1 unchanged")
	deploy(0, "2 unchanged")

	// A change of the hive that changes the system of only one machine.
	hive := filepath.Join(dir, "hive.nix")
	text, err := os.ReadFile(hive)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "allowedTCPPorts = [ 80 ]", "allowedTCPPorts = [ 80 443 ]", 1)
	if err := os.WriteFile(hive, []byte(changed), 0o644); err != nil || changed == string(text) {
		t.Fatal("the template has no port 80:", err)
	}
	deploy(0, "1 switched, 1 unchanged")

	deploy(2, "no such node", "--on", "nosuch")
	l.Run(t, "db", "systemd-run --quiet --on-active=5s systemctl start ssh; systemctl stop ssh")
	deploy(6, "1 unchanged")
}
