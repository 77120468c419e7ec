package remote_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
)

// TestLoginShell runs a command with login shells, here forced commands of sshd, that print text or do not run it.
func TestLoginShell(t *testing.T) {
	t.Parallel()
	command := remote.Cmd{Argv: sh("echo out; echo err >&2; exit $1", "3")}
	for name, test := range map[string]struct{ shell, want string }{
		"prints text":       {`echo hello; echo hello >&2; exec sh -c "$SSH_ORIGINAL_COMMAND"`, ": exit status 3: err"},
		"refuses":           {`echo closed; printf "\033[31m" >&2; exit 1`, ` accepts the login of ` + currentUser(t) + `, but runs no command: exit status 1: "`},
		"does other things": {`echo closed`, `runs no command: exit status 0: "closed"`},
		"is killed":         {`kill -TERM $$`, "runs no command: killed by signal TERM"},
	} {
		conn := kind(realSSHD).start(t, want{sshdConfig: "ForceCommand " + test.shell}).dial(t)
		out, err := conn.Output(t.Context(), command)
		if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("a login shell that %s: %v, want %s", name, err, test.want)
		}
		var refused *remote.AuthError
		if errors.As(err, &refused) {
			if failure.KindOf(err) != failure.Unreachable || len(out) != 0 {
				t.Errorf("a login shell that %s: kind %v, output %q", name, failure.KindOf(err), out)
			}
		} else if string(out) != "out\n" {
			t.Errorf("a login shell that %s: output %q", name, out)
		}
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := kind(realSSHD).start(t, want{sshdConfig: "ForceCommand sleep 60"}).dial(t).Run(limited, command)
	if !strings.Contains(err.Error(), "the login shell of "+currentUser(t)+" has not started it") {
		t.Errorf("a login shell that hangs: %v", err)
	}
}

// The server's text is the only reason that the user gets for a login that PAM refuses.
func TestBanner(t *testing.T) {
	t.Parallel()
	banner := filepath.Join(t.TempDir(), "banner")
	if err := os.WriteFile(banner, []byte("maintenance\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := kind(realSSHD).start(t, want{sshdConfig: "Banner " + banner})
	cfg := s.config(t)
	cfg.IdentityFiles = []string{newKey(t).file}
	if err := try(t, cfg, remote.Options{}); err == nil || !strings.Contains(err.Error(), `(the server says: "maintenance")`) {
		t.Error(err)
	}
}
