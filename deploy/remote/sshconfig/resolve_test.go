package sshconfig

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeSSH answers `ssh -G` for the hosts it knows, and records the questions.
type fakeSSH struct {
	answers map[string]string // by host
	asked   [][]string
}

func (f *fakeSSH) run(_ context.Context, argv []string) (string, error) {
	f.asked = append(f.asked, argv)
	answer, ok := f.answers[argv[len(argv)-1]]
	if !ok {
		return "", fmt.Errorf("unexpected call: %q", argv)
	}
	return answer, nil
}

// setEnv sets the variables that the answers use.
func setEnv(t *testing.T) {
	for name, value := range map[string]string{"SSH_AUTH_SOCK": "/run/agent", "KEYS": "/keys", "MINE": "/run/mine", "HOME": "/home/alice"} {
		t.Setenv(name, value)
	}
}

const plain = `host node
hostname 192.0.2.7
user alice
port 22
`

func TestResolve(t *testing.T) {
	setEnv(t)
	ssh := &fakeSSH{answers: map[string]string{"web": `host web
user CORP\alice
hostname web.example
port 2222
addressfamily inet
identitiesonly yes
stricthostkeychecking accept-new
hashknownhosts yes
serveralivecountmax 5
serveraliveinterval 7
connecttimeout 9
hostkeyalias web-alias
identityfile ~/.ssh/id_%h
identityfile ${KEYS}/a b
certificatefile ~/.ssh/cert
globalknownhostsfile /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2
userknownhostsfile /home/alice/my known/%k ~/.ssh/known_hosts2
forwardagent yes
proxycommand nc -X 5 %h %p -u %r 100%%
`}}
	port, user := 2222, `CORP\alice`
	cfg, err := resolve(t.Context(), Target{
		Name: "node-1", Host: "web", Port: &port, User: &user, SSHOptions: []string{"-o", "Foo=bar"}, IdentityFiles: []string{"/ours"},
		Escalation: []string{"sudo", "-H", "--"},
	}, ssh.run)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"ssh", "-G", "-T", "-p", "2222", "-l", `CORP\alice`, "-o", "Foo=bar", "--", "web"}; !slices.Equal(ssh.asked[0], want) {
		t.Errorf("asked %q", ssh.asked)
	}
	want := Config{
		Node: "node-1", Alias: "web", HostName: "web.example", Port: 2222, User: `CORP\alice`, Network: "tcp4",
		IdentityFiles:    []string{"/ours", "/home/alice/.ssh/id_web.example", "/keys/a b"},
		CertificateFiles: []string{"/home/alice/.ssh/cert"}, IdentityAgent: "/run/agent", IdentitiesOnly: true,
		KnownHosts:       []string{"/home/alice/my known/web-alias", "/home/alice/.ssh/known_hosts2"},
		GlobalKnownHosts: []string{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"},
		HostKeyAlias:     "web-alias", HashKnownHosts: true, AcceptNew: true,
		ProxyCommand: "nc -X 5 web.example 2222 -u CORP\\alice 100%", Escalation: []string{"sudo", "-H", "--"},
		ConnectTimeout: 9 * time.Second, KeepAliveInterval: 7 * time.Second, KeepAliveMax: 5,
	}
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Error(diff)
	}
}

func TestResolveAgent(t *testing.T) {
	setEnv(t)
	for said, want := range map[string]string{
		"": "/run/agent", "identityagent none": "", "identityagent SSH_AUTH_SOCK": "/run/agent",
		"identityagent $MINE": "/run/mine", "identityagent ${MINE}/x": "/run/mine/x", "identityagent ~/a": "/home/alice/a",
	} {
		ssh := &fakeSSH{answers: map[string]string{"node": plain + said}}
		cfg, err := resolve(t.Context(), Target{Host: "node"}, ssh.run)
		if err != nil || cfg.IdentityAgent != want {
			t.Errorf("%q: %q, %v, want %q", said, cfg.IdentityAgent, err, want)
		}
	}
}

func TestResolveJump(t *testing.T) {
	ssh := &fakeSSH{answers: map[string]string{"node": plain + "proxyjump bob@outer:2022,ssh://inner\n", "near": plain + "proxyjump hop\n"}}
	for _, test := range []struct {
		target Target
		want   []string
	}{
		{Target{Host: "node", SSHOptions: []string{"-F", "other", "-F", "cfg", "-o", "User=x"}}, []string{"-F", "cfg", "-J", "bob@outer:2022", "--", "ssh://inner"}},
		{Target{Host: "near"}, []string{"--", "ssh://hop"}},
		{Target{Host: "near", Jump: "root@kvm1:2222"}, []string{"--", "ssh://root@kvm1:2222"}},
	} {
		cfg, err := resolve(t.Context(), test.target, ssh.run)
		if err != nil || !slices.Equal(cfg.Jump, test.want) {
			t.Errorf("%q, %v, want %q", cfg.Jump, err, test.want)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	bad, zero := "-oProxyCommand=id", 0
	for name, target := range map[string]Target{
		"an option as host": {Host: "-oProxyCommand=id"},
		"a command as host": {Host: "a;id"},
		"no host":           {},
		"an option as user": {Host: "node", User: &bad},
		"port 0":            {Host: "node", Port: &zero},
		"a bad jump host":   {Host: "node", Jump: "$(id)"},
		"a pinned key":      {Host: "node", HostKeys: []string{"ssh-ed25519 nonsense"}},
	} {
		ssh := &fakeSSH{answers: map[string]string{"node": plain}}
		if _, err := resolve(t.Context(), target, ssh.run); err == nil {
			t.Errorf("%s was taken", name)
		} else if len(ssh.asked) > 0 {
			t.Errorf("%s reached ssh: %q", name, ssh.asked)
		}
	}
	for _, said := range []string{
		"hostname $(id)", "user a`id`", "port x", "port 70000", "proxyjump a b", "proxyjump -x", "proxyjump a,u@-x", "proxyusefdpass yes",
		"connecttimeout soon",
		"identityfile ${NOT_SET}/x", "proxycommand nc %C", "serveraliveinterval -3",
	} {
		key, _, _ := strings.Cut(said, " ")
		var lines []string
		for line := range strings.Lines(plain) {
			if !strings.HasPrefix(line, key+" ") {
				lines = append(lines, line)
			}
		}
		ssh := &fakeSSH{answers: map[string]string{"node": strings.Join(append(lines, said), "")}}
		if cfg, err := resolve(t.Context(), Target{Name: "node-1", Host: "node"}, ssh.run); err == nil {
			t.Errorf("%q was taken: %+v", said, cfg)
		} else if !strings.HasPrefix(err.Error(), "node-1: ") {
			t.Errorf("%q: the error does not name the node: %v", said, err)
		}
	}
	missing := func(context.Context, []string) (string, error) { return "", exec.ErrNotFound }
	if _, err := resolve(t.Context(), Target{Host: "node"}, missing); !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "install") {
		t.Errorf("without ssh: %v", err)
	}
}

// Each host is resolved with its own OpenSSH configuration, and the node's options.
func TestResolveFallbacks(t *testing.T) {
	port := 2200
	var asked []string
	run := func(_ context.Context, argv []string) (string, error) {
		asked = append(asked, strings.Join(argv, " "))
		host := argv[len(argv)-1]
		return "hostname " + host + ".example\nport 22\nuser " + host + "-user\nproxyjump none\n", nil
	}
	cfg, err := resolve(t.Context(), Target{Name: "n", Host: "a", Fallbacks: []string{"b"}, Port: &port}, run)
	if err != nil {
		t.Fatal(err)
	}
	if len(asked) != 2 || asked[1] != "ssh -G -T -p 2200 -- b" {
		t.Errorf("asked %q", asked)
	}
	if len(cfg.Fallbacks) != 1 || cfg.HostName != "a.example" || cfg.Fallbacks[0].HostName != "b.example" || cfg.Fallbacks[0].User != "b-user" {
		t.Errorf("%+v", cfg)
	}
	if _, err := resolve(t.Context(), Target{Name: "n", Host: "a", Fallbacks: []string{"-b"}}, run); err == nil || !strings.Contains(err.Error(), "-b") {
		t.Errorf("error %v", err)
	}
}
