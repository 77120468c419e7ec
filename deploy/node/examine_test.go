package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
)

// A hint is added to errors that have none, unless the node cannot be reached.
func TestAddCause(t *testing.T) {
	s, err := sshtest.Start(sshtest.Options{Handler: func(_ context.Context, e *sshtest.Exec) int {
		fmt.Fprintf(e.Stdout, "%d\nrw 0 65536 100 200 /run\n", time.Now().Unix())
		return 0
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := t.TempDir() + "/key"
	if err := os.WriteFile(key, sshtest.GeneratePrivateKey(), 0o600); err != nil {
		t.Fatal(err)
	}
	hive := &nixeval.Hive{Nodes: []nixeval.Node{{Name: "a", Unit: "a"}}, Units: []nixeval.Unit{{Name: "a", Deployment: nixeval.Deployment{TargetHosts: []string{"127.0.0.1"}}}}}
	f := fleet.New(hive, fleet.Options{Resolve: func(context.Context, sshconfig.Target) (sshconfig.Config, error) {
		return sshconfig.Config{Node: "a", HostName: "127.0.0.1", Port: s.Port(), User: "root", Network: "tcp",
			IdentityFiles: []string{key}, IdentitiesOnly: true, HostKeys: []ssh.PublicKey{s.Key()}}, nil
	}})
	defer f.Close()
	plain := errors.New("exit status 1")
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{plain, "a: /run is full"},
		{failure.WithHint(plain, "other"), "other"},
		{failure.WithKind(failure.Unreachable, plain), ""},
	} {
		got := AddCause(t.Context(), f, "a", test.err)
		if hint := failure.Hint(got); !errors.Is(got, test.err) || !strings.HasPrefix(hint, test.want) || (hint == "") != (test.want == "") {
			t.Errorf("%v: hint %q, want %q", test.err, hint, test.want)
		}
	}
}

func TestReadFindings(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for out, want := range map[string]string{
		"1000010\nrw 500000 900000 100 200 /\nrw 500000 900000 0 0 /home\nrw 0 0 0 0 /tmp\n": "",
		"1000000\nrw 0 65536 100 200 /run\nrw 0 65536 100 200 /run\n":                        "/run is full or nearly so: 0 KiB of 65536 KiB are free (remove files, or reboot the node, which empties it)",
		"1000000\nrw 500000 900000 0 200 /\nro 500000 900000 10 200 /my boot\n":              "/ has no free inodes (remove files, or old generations with nix-collect-garbage -d), /my boot is read-only",
		"900000\nrw 500000 900000 - - /\n":                                                   "its clock is 27h46m40s off (it is 1970-01-11T10:00:00Z there)",
		"sh: date: not found\nnonsense\n":                                                    "",
	} {
		if got := strings.Join(readFindings(out, now), ", "); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
	out, err := exec.Command("sh", "-c", examineScript).CombinedOutput()
	if lines := strings.Split(string(out), "\n"); err != nil || len(lines) < 4 || len(strings.Fields(lines[1])) != 6 || !strings.HasPrefix(lines[1], "rw ") {
		t.Errorf("%v: %s", err, out)
	}
}
