package closure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

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
	got, err := c.Copy(t.Context(), "web-1", h, f.system()[0], "")
	if want := (Stats{Paths: 200, Bytes: 200_000, Closure: 300_000}); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	// One process reads the records, and one reads the paths, which do not exist for the test.
	if want := "nix-daemon --stdio --extra-experimental-features nix-command flakes --option cores 2"; !slices.Equal(f.argvs, []string{want, want}) {
		t.Errorf("%q", f.argvs)
	}
	told := seen.of(event.NodeProgress)
	first, last := told[0], told[len(told)-1]
	if first.Done != 0 || last.Done != 200_000 || last.Total != 200_000 || last.Text != "200 of 200 paths" || last.Node != "web-1" || last.Phase != event.Copy {
		t.Errorf("%+v … %+v", first, last)
	}

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
	if _, _, err := c.Missing(gone, "web-1", h, f.system()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	f.query = func(nixeval.Command) error { return errors.New("the store is busy") }
	if _, _, err := c.Missing(t.Context(), "web-1", h, f.system()); err == nil || !strings.Contains(err.Error(), "the store is busy") {
		t.Errorf("failed: %v", err)
	}
	f.query, f.argvs = nil, nil // a failure is not cached
	var work sync.WaitGroup
	for range 10 {
		work.Go(func() {
			paths, bytes, err := c.Missing(t.Context(), "web-1", h, f.system())
			if len(paths) != 20 || bytes != 20_000 || err != nil {
				t.Errorf("%d paths, %d bytes, %v", len(paths), bytes, err)
			}
		})
	}
	work.Wait()
	if len(f.argvs) != 1 {
		t.Errorf("%q", f.argvs)
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
	if len(seen.of(event.Message)) > 0 {
		t.Errorf("%+v", seen.of(event.Message))
	}

	local := newLocalStore(t, 4, 1_000_000)
	streaming, _ := local.copier()
	if got, err := streaming.Copy(t.Context(), "web-1", h, local.system()[0], ""); err != nil || got.Paths != 4 {
		t.Errorf("%+v, %v", got, err)
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
