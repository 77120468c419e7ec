package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/e2e/fixture"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"nixbench": main})
}

// TestScripts runs every command against the real Nix and the mini NixOS fixture. Each script has
// its own HOME and hive; all use the store of this machine.
//
// UPDATE_SCRIPTS=1 updates the expected output in the scripts.
func TestScripts(t *testing.T) {
	t.Parallel()
	mini := fixture.Nixpkgs(t)
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, ".home"))
			env.Setenv("NIX_CONFIG", fixture.NixConfig)
			env.Setenv("NIX_PATH", "nixpkgs="+mini)
			env.Setenv("MINI", mini)
			env.Setenv("REPO", repo)
			for k, v := range map[string]string{
				"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org",
				"GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.org",
			} {
				env.Setenv(k, v)
			}
			return os.MkdirAll(filepath.Join(env.WorkDir, ".home"), 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"muteserver":  muteServerCmd,
			"count":       countCmd,
			"answered":    answeredCmd,
			"interrupted": interruptedCmd,
			"noprocess":   noProcessCmd,
			"silent":      silentCmd,
			"sshserver":   sshServerCmd,
			"waitfor":     waitForCmd,
		},
	})
}

// count N FILE TEXT: the file (or stdout, stderr) contains TEXT in exactly N lines.
func countCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: count N FILE TEXT")
	}
	n := 0
	for line := range strings.SplitSeq(ts.ReadFile(args[1]), "\n") {
		if strings.Contains(line, args[2]) {
			n++
		}
	}
	if fmt.Sprint(n) != args[0] {
		ts.Fatalf("%d lines of %s hold %q, want %s", n, args[1], args[2], args[0])
	}
}

// noprocess TEXT: no process has TEXT in its command line.
func noProcessCmd(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: noprocess TEXT")
	}
	found := processWith(args[0])
	for begun := time.Now(); found != "" && !neg && time.Since(begun) < 10*time.Second; found = processWith(args[0]) {
		time.Sleep(50 * time.Millisecond) // a signal to the process may be on its way
	}
	if (found != "") != neg {
		ts.Fatalf("processes with %q: %q", args[0], found)
	}
}

func processWith(text string) string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, _ := os.ReadFile(f)
		if bytes.Contains(line, []byte(text)) && !strings.HasPrefix(f, fmt.Sprintf("/proc/%d/", os.Getpid())) {
			return string(bytes.ReplaceAll(line[:min(len(line), 200)], []byte{0}, []byte(" ")))
		}
	}
	return ""
}

// sshserver: starts an SSH server that runs commands on this machine until the script ends. With
// the file ssh_config, every host name refers to it. The server's environment contains $WORK and
// the PATH of the script.
func sshServerCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: sshserver")
	}
	s, err := sshtest.Start(sshtest.Options{Env: append(os.Environ(), "WORK="+ts.Getenv("WORK"), "PATH="+ts.Getenv("PATH"))})
	ts.Check(err)
	ts.Defer(func() { s.Close() })
	key, known := ts.MkAbs("ssh_key"), ts.MkAbs("known_hosts")
	config := fmt.Sprintf("Host *\n HostName 127.0.0.1\n Port %d\n User root\n IdentityFile %s\n IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile %s\n GlobalKnownHostsFile none\n",
		s.Port(), key, known)
	ts.Check(os.WriteFile(key, sshtest.GeneratePrivateKey(), 0o600))
	ts.Check(os.WriteFile(known, []byte(s.KnownHostsLine()+"\n"), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("ssh_config"), []byte(config), 0o600))
}

// muteserver: starts a server that accepts connections and sends nothing until the script ends.
// With the file mute_config, every host name refers to it.
func muteServerCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: muteserver")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts the connections
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	config := fmt.Sprintf("Host *\n HostName 127.0.0.1\n Port %d\n IdentityAgent none\n GlobalKnownHostsFile none\n", l.Addr().(*net.TCPAddr).Port)
	ts.Check(os.WriteFile(ts.MkAbs("mute_config"), []byte(config), 0o600))
}

// waitfor FILE: waits up to ten seconds until the file exists.
func waitForCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor FILE")
	}
	cmd := exec.Command("sh", "-c", `for i in $(seq 100); do [ -e "$0" ] && exit 0; sleep 0.1; done; exit 1`, ts.MkAbs(args[0]))
	if cmd.Run() != nil {
		ts.Fatalf("%s did not appear", args[0])
	}
}
