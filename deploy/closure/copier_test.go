package closure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
)

func TestCopyBringsWhatIsMissing(t *testing.T) {
	f := newFakes(t, 300)
	f.there.SetValid(f.closure[:100]...)
	s, h, c, seen := f.node(sshtest.Options{})
	c.NixOptions = [][2]string{{"cores", "2"}}
	f.copy = func(_ context.Context, cmd nixeval.Command) error {
		to := cmd.Argv[len(cmd.Argv)-4]
		socket, ok := strings.CutPrefix(to, "unix://")
		info, err := os.Stat(socket)
		if !ok || err != nil || info.Mode().Type() != fs.ModeSocket {
			t.Errorf("%s is not a socket: %v", to, err)
		}
		if dir, _ := os.Stat(filepath.Dir(socket)); dir.Mode().Perm() != 0o700 {
			t.Errorf("its folder has mode %o", dir.Mode().Perm())
		}
		f.arrive(cmd, f.closure...)
		return nil
	}
	got, err := c.Copy(t.Context(), "web-1", h, f.system()[0], "")
	if want := (Stats{Paths: 200, Bytes: 200_000, Closure: 300_000}); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	if f.ran("nix copy --extra-experimental-features nix-command flakes --option cores 2 --log-format internal-json --to unix://") != 1 {
		t.Errorf("%q", f.argvs)
	}
	told := seen.of(event.NodeProgress)
	first, last := told[0], told[len(told)-1]
	if first.Done != 0 || last.Done != 200_000 || last.Total != 200_000 || last.Text != "200 of 200 paths" || last.Node != "web-1" || last.Phase != event.Copy {
		t.Errorf("%+v … %+v", first, last)
	}
	nothingLeft(t, c.Dir)

	// Again: one question, and no process.
	ran, asked := len(f.argvs), f.there.Asked(31)
	got, err = c.Copy(t.Context(), "web-1", h, f.system()[0], "")
	if err != nil || got != (Stats{}) || len(f.argvs) != ran || f.there.Asked(31) != asked+1 || s.Commands() != 0 || s.Handshakes() != 1 {
		t.Errorf("%+v, %v; %d processes, %d questions, %d logins", got, err, len(f.argvs)-ran, f.there.Asked(31)-asked, s.Handshakes())
	}
}

func TestNodesShareTheQuery(t *testing.T) {
	f := newFakes(t, 20)
	_, h, c, _ := f.node(sshtest.Options{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Missing(gone, "web-1", h, f.system()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	f.query = func(nixeval.Command) error { return errors.New("the store is busy") }
	if _, err := c.Missing(t.Context(), "web-1", h, f.system()); err == nil || !strings.Contains(err.Error(), "the store is busy") {
		t.Errorf("failed: %v", err)
	}
	f.query, f.argvs = nil, nil // a failure is not cached
	var work sync.WaitGroup
	for range 10 {
		work.Go(func() {
			got, err := c.Missing(t.Context(), "web-1", h, f.system())
			if got.Paths != 20 || got.Bytes != 20_000 || err != nil {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	work.Wait()
	if f.ran("nix-daemon --stdio") != 1 || f.ran("nix copy") != 0 {
		t.Errorf("%q", f.argvs)
	}
}

func TestTheNextCopyGoesOn(t *testing.T) {
	f := newFakes(t, 10)
	_, h, c, seen := f.node(sshtest.Options{})
	f.copy = func(_ context.Context, cmd nixeval.Command) error {
		f.arrive(cmd, f.closure[:4]...)
		return fails(cmd, "unexpected end-of-file")
	}
	_, err := c.Copy(t.Context(), "web-1", h, f.system()[0], "")
	want := "web-1: copy 10 paths (4 copied, the next run continues from there): unexpected end-of-file"
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "nix copy") {
		t.Errorf("%v", err)
	}
	told := seen.of(event.NodeProgress)
	if last := told[len(told)-1]; last.Done > 4000 {
		t.Errorf("%+v", last)
	}
	f.copy = nil
	got, err := c.Copy(t.Context(), "web-1", h, f.system()[0], "")
	if err != nil || got != (Stats{Paths: 6, Bytes: 6000, Closure: 10_000}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFailuresSayWhatToDo(t *testing.T) {
	for name, test := range map[string]struct{ says, want, hint string }{
		"untrusted": {"cannot add path '/nix/store/x' because it lacks a signature by a trusted key",
			"web-1: copy 10 paths: the Nix daemon does not trust root", "nix.settings.trusted-users of web-1"},
		"disk full": {"writing to file: No space left on device",
			"the node's disk is full", "nix-collect-garbage -d"},
		"database full": {"executing SQLite query: database or disk is full",
			"the node's disk is full", "nix-collect-garbage -d"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakes(t, 10)
			_, h, c, _ := f.node(sshtest.Options{})
			f.copy = func(_ context.Context, cmd nixeval.Command) error { return fails(cmd, test.says) }
			_, err := c.Copy(t.Context(), "web-1", h, f.system()[0], "")
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.says) || !strings.Contains(e.Hint(), test.hint) {
				t.Errorf("%v\nhint: %s", err, e.Hint())
			}
			nothingLeft(t, c.Dir)
		})
	}
}

// If sshd forbids forwarding, the daemon is reached by a program on the node.
func TestForwardingForbidden(t *testing.T) {
	f := newFakes(t, 3)
	_, h, c, seen := f.node(sshtest.Options{ForbidForwarding: true})
	got, err := c.Copy(t.Context(), "web-1", h, f.system()[0], "")
	if err != nil || got.Paths != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if f.ran("nix copy") != 1 || len(seen.of(event.Message)) > 0 {
		t.Errorf("%q, %+v", f.argvs, seen.of(event.Message))
	}
	nothingLeft(t, c.Dir)

	local := newLocalStore(t, 4, 1_000_000)
	streaming, _ := local.copier()
	if got, err := streaming.Copy(t.Context(), "web-1", h, local.system()[0], ""); err != nil || got.Paths != 4 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestLostAndCancelled(t *testing.T) {
	for name, end := range map[string]func(s *sshtest.Server, cancel context.CancelCauseFunc){
		"lost":      func(s *sshtest.Server, _ context.CancelCauseFunc) { s.Drop() },
		"cancelled": func(_ *sshtest.Server, cancel context.CancelCauseFunc) { cancel(errTest) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakes(t, 3)
			s, h, c, _ := f.node(sshtest.Options{})
			ctx, cancel := context.WithCancelCause(t.Context())
			f.copy = func(ctx context.Context, cmd nixeval.Command) error {
				end(s, cancel)
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Second):
					t.Error("nix copy was not cancelled")
				}
				// While Nix sends data it reacts only to the end of its connection.
				_, socket, _ := strings.Cut(strings.Join(cmd.Argv, " "), "unix://")
				socket, _, _ = strings.Cut(socket, " ")
				for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
					probe, err := net.Dial("unix", socket)
					if err != nil {
						break
					}
					probe.Close()
					if time.Since(begun) > 20*time.Second {
						t.Error("the forwarded socket is still open")
						break
					}
				}
				return context.Cause(ctx)
			}
			_, err := c.Copy(ctx, "web-1", h, f.system()[0], "")
			var lost *remote.LostError
			if name == "lost" && !errors.As(err, &lost) || name == "cancelled" && !errors.Is(err, errTest) {
				t.Errorf("%v", err)
			}
			if strings.Contains(err.Error(), "command:") || strings.Count(err.Error(), "web-1: ") != 1 {
				t.Errorf("%v", err)
			}
			nothingLeft(t, c.Dir)
		})
	}
}

var errTest = errors.New("interrupted")

func TestUnreachableIsPassedOn(t *testing.T) {
	f := newFakes(t, 3)
	s, h, c, _ := f.node(sshtest.Options{})
	s.Close()
	var unreachable *remote.UnreachableError
	if _, err := c.Copy(t.Context(), "web-1", h, f.system()[0], ""); !errors.As(err, &unreachable) {
		t.Errorf("%v", err)
	}
	if len(f.argvs) != 0 {
		t.Errorf("%q", f.argvs)
	}
}

func TestNodeWithoutDaemon(t *testing.T) {
	for text, hint := range map[string]string{
		"sh: nix-daemon: not found": "nix-daemon on the PATH",
		"error: cannot connect to socket at '/nix/var/nix/daemon-socket/socket': Permission denied": "nix.settings.trusted-users of web-1",
	} {
		_, h := startServer(t, sshtest.Options{Handler: func(_ context.Context, e *sshtest.Exec) int {
			fmt.Fprintln(e.Stderr, text)
			return 127
		}})
		_, err := (&Copier{socket: at("/nowhere")}).Copy(t.Context(), "web-1", h, "/nix/store/x", "")
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), text) || !strings.Contains(e.Hint(), hint) || strings.Count(err.Error(), "web-1: ") != 1 {
			t.Errorf("%v", err)
		}
	}
}

func TestSubstitute(t *testing.T) {
	f := newFakes(t, 3)
	_, h, c, _ := f.node(sshtest.Options{})
	c.Substitute = true
	if _, err := c.Copy(t.Context(), "web-1", h, f.system()[0], ""); err != nil {
		t.Fatal(err)
	}
	if line := f.argvs[1]; !strings.Contains(line, "--substitute-on-destination") || !strings.Contains(line, "builders-use-substitutes true") {
		t.Errorf("%s", line)
	}
}

// A copy makes a root on the node, under the name that was asked for.
func TestProtect(t *testing.T) {
	f := newFakes(t, 1)
	_, h, c, _ := f.node(sshtest.Options{})
	var argv []string
	status := 0
	f.remote = func(e *sshtest.Exec) (int, bool) {
		argv = e.Argv
		return status, true
	}
	system := f.system()[0]
	f.there.SetValid(system)
	if _, err := c.Copy(t.Context(), "web-1", h, system, "wanted"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"ln", "-sfn", system, "/run/nixbench/gcroots/wanted"}; !slices.Equal(argv, want) {
		t.Errorf("got %q, want %q", argv, want)
	}
	if got, want := f.there.Roots(), []string{system, "/run/nixbench/gcroots/wanted"}; !slices.Equal(got, want) {
		t.Errorf("roots %q, want %q", got, want)
	}
	status = 1
	var e *Error
	if _, err := c.Copy(t.Context(), "web-1", h, system, "wanted"); !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "web-1: protect "+system) {
		t.Errorf("%v", err)
	}
}
