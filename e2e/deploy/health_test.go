package deploy

import (
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// webServer is a function that returns a module with a web server. The server listens after some seconds, and gives the same answer to
// each request. The node checks its health.
const webServer = `web = seconds: answer: timeout: {
  environment.etc."web.pl".text = ''
    sleep ${toString seconds};
    my $server = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1:8080", ReuseAddr => 1) or die $@;
    while (my $client = $server->accept) {
      while (<$client>) { last if /^\r?$/ }
      print $client "HTTP/1.1 ${answer}";
      close $client;
    }
  '';
  systemd.services.web = { wantedBy = [ "multi-user.target" ]; serviceConfig.ExecStart = "/usr/bin/perl -MIO::Socket::INET /etc/web.pl"; };
  deployment.healthChecks.web = { http = "http://:8080/healthz"; inherit timeout; };
};`

// A switch is confirmed when the node's health checks pass. A node whose check gives the wrong answer, or none, rolls back.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, lab.Start(t, 3))
	s.runOn("m1", "usermod -aG nix-users deploy")
	hive := func(m1, m2, m3 string) {
		s.Helper()
		s.writeHive("")
		s.writeFile("hive.nix", strings.Replace(s.readFile("hive.nix"), "let\n", "let\n"+webServer+"\n", 1)+"// {\n  m1 = { "+m1+" };\n  m2 = { "+m2+" };\n  m3 = { "+m3+" };\n}\n")
	}
	one := `imports = [ (which "one") ];`
	hive(one, one, one)
	s.run(0, "apply")

	good := `imports = [ (which "two") (web 5 "200 OK\\r\\n\\r\\n" 60) ]; deployment.targetUser = "deploy";
    deployment.healthChecks = { ssh = { tcp = ":22"; from = "here"; }; root.command = [ "sh" "-c" "test $(id -u) = 0" ]; };`
	hive(good, `imports = [ (which "two") (web 0 "503 No\\r\\n\\r\\nno database" 4) ];`, `imports = [ (which "two") (web 100 "" 4) ];`)
	s.says(s.run(0, "plan"), "CHECKS")
	got := s.run(8, "apply", "--timeout", "confirm=20s,settle=0s")
	s.says(got, "1 switched, 2 rolled-back",
		"error: m2: switch to ", ": health check web: http://127.0.0.1:8080/healthz: status 503 No: no database (", " in 4s); the node rolled back to ",
		"error: m3: switch to ", ": health check web: http://127.0.0.1:8080/healthz: connection refused (")
	if waits := s.findEvents(func(h runEvent) bool {
		return h.Event == "wait" && h.Node == "m1" && h.Phase == "confirm" && h.Text == "health check web: http://127.0.0.1:8080/healthz: connection refused"
	}); len(waits) == 0 {
		t.Errorf("no event says for what m1 waits: %q", s.events())
	}
	if limit := 60 * time.Second; got.took > limit {
		t.Errorf("the rollback came after %v", got.took)
	}
	s.checkWhich("m1=two", "m2=one", "m3=one")
	s.checkNothingLeft("m1", "m2", "m3")

	s.says(s.run(0, "check", "--on", "m1"), "health checks of 1 node pass")
	s.run(0, "status", "--check", "--on", "m1")
	s.runOn("m1", "systemctl stop web")
	s.says(s.run(9, "check", "--on", "m1", "--timeout", "1s"), "health check web: http://127.0.0.1:8080/healthz: connection refused")
	s.says(s.run(9, "status", "--check", "--on", "m1"), "m1: health check web: http://127.0.0.1:8080/healthz: connection refused", "unhealthy, or not in the expected state: m1")
	s.saysNot(s.run(0, "status", "--check", "--on", "m1", "--no-health-checks"), "health check web")
	s.says(s.run(9, "apply", "--on", "m1", "--timeout", "check=1s"), "1 unchanged", "health check web: http://127.0.0.1:8080/healthz: connection refused")
	s.run(0, "apply", "--no-health-checks")
	s.checkWhich("m1=two", "m2=two", "m3=two")
}
