package remote_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
)

// A compromised node can make its commands fail, and nothing else.
func TestHostileNode(t *testing.T) {
	attacks := maps.Clone(sshtest.Attacks)
	attacks["silence"] = func(ctx context.Context, _ *sshtest.Exec) int {
		<-ctx.Done()
		return 0
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := sshtest.Start(sshtest.Options{Handler: attack, RepeatMarks: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			cfg := (&server{want: want{hostKey: newKey(t), user: newKey(t)}, port: s.Port(), login: "alice"}).config(t)
			cfg.HostKeys = []ssh.PublicKey{s.Key()}
			cfg.Escalation = []string{"sudo"}
			conn := dial(t, cfg, remote.Options{Prompt: func(context.Context, string) ([]byte, error) { return []byte("x"), nil }})
			begin := time.Now()
			limited, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			out, err := conn.Output(limited, remote.Cmd{Argv: []string{"look", "around"}, Sudo: true})
			t.Logf("%d bytes after %v, error %.200v", len(out), time.Since(begin).Round(time.Millisecond), err)
			if len(out) > 4<<20 || time.Since(begin) > 10*time.Second {
				t.Error("too much, or too late")
			}
			var failed *remote.RunError
			var endless *remote.OutputError
			var late *remote.TimeoutError
			if err != nil && !errors.As(err, &failed) && !errors.As(err, &endless) && !errors.As(err, &late) {
				t.Errorf("error %T", err)
			}
		})
	}
}
