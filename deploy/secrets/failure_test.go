package secrets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
)

// The error of a failed key contains its name. The other keys are uploaded, and nothing is removed.
func TestFailures(t *testing.T) {
	n := start(t, sshtest.Options{})
	n.upload(t, keys{"old": n.key(t, "old", "0")}, All)
	if err := os.MkdirAll(filepath.Join(n.dir, "run/keys/folder/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "run/file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	noUser := func(k *nixeval.Key) { k.User = "nixbench-nobody" }
	ks := keys{
		"a": n.key(t, "a", "first"), "z": n.key(t, "z", "last", late),
		"folder":   n.key(t, "folder", strings.Repeat("2", 1<<17)),
		"under":    n.key(t, "x", strings.Repeat("3", 1<<17), func(k *nixeval.Key) { k.DestDir = filepath.Join(n.dir, "run/file") }),
		"no-owner": n.key(t, "no-owner", "4", late, noUser),
		"deferred": n.key(t, "deferred", "5", noUser, mode("0444")),
	}
	got, err := n.Upload(t.Context(), n.host, n.load(t, ks, All))
	want := Result{Uploaded: []string{"a", "deferred", "z"}, Deferred: []string{"deferred"}, Stale: []string{filepath.Join(n.dir, "run/keys/old")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err == nil {
		t.Fatal("no error")
	}
	for _, text := range []string{
		"web-1.deployment.keys.folder: cannot write it to " + n.dir + "/run/keys/folder: mv: ",
		"web-1.deployment.keys.under: cannot write it to " + n.dir + "/run/file/x: ",
		"web-1.deployment.keys.no-owner: cannot write it to ", "the node has no user nixbench-nobody",
	} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error lacks %q:\n%v", text, err)
		}
	}
	if strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("not one line for each:\n%v", err)
	}
	files := map[string]string{"keys/a": "600 first", "keys/old": "600 0", "keys/z": "600 last", "keys/deferred": "600 5", "file": "644 "}
	if diff := cmp.Diff(files, n.files(t)); diff != "" {
		t.Error(diff)
	}
	// A deferred key is not uploaded again.
	delete(ks, "folder")
	delete(ks, "under")
	delete(ks, "no-owner")
	if diff := cmp.Diff(Result{Unchanged: []string{"a", "deferred", "z"}, Deferred: []string{"deferred"}, Stale: want.Stale, Removed: want.Stale}, n.upload(t, ks, All)); diff != "" {
		t.Error(diff)
	}
	// A mode that is too open is tightened while the owner does not exist yet.
	if err := os.Chmod(ks["deferred"].Path, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := n.upload(t, ks, All); len(got.Adjusted) != 1 || n.files(t)["keys/deferred"] != "600 5" {
		t.Errorf("%+v, %q", got, n.files(t))
	}
}

// Wherever the connection breaks, each key is either the old or the new one, and the next upload
// completes the set.
func TestInterrupted(t *testing.T) {
	good := start(t, sshtest.Options{})
	before := keys{"a": good.key(t, "a", "old"), "gone": good.key(t, "gone", "old")}
	after := keys{"a": good.key(t, "a", strings.Repeat("new", 1<<16)), "b": good.key(t, "b", "new")}
	finished := false
	for drop := int64(2200); !finished; drop += 190 {
		good.upload(t, before, All)
		bad, err := sshtest.Start(sshtest.Options{DropAfter: drop})
		if err != nil {
			t.Fatal(err)
		}
		_, err = good.Upload(t.Context(), connect(t, bad), good.load(t, after, All))
		finished = err == nil
		bad.Close()
		for name, text := range good.files(t) {
			if name == "keys/a" && text != "600 old" && text != "600 "+after["a"].Text.Reveal() || name == "keys/b" && text != "600 new" {
				t.Errorf("after %d bytes %s has %.20q (%d)", drop, name, text, len(text))
			}
		}
		good.upload(t, after, All)
		want := map[string]string{"keys/a": "600 " + after["a"].Text.Reveal(), "keys/b": "600 new"}
		if diff := cmp.Diff(want, good.files(t)); diff != "" {
			t.Fatalf("after %d bytes and another upload: %s", drop, diff)
		}
	}
}

// When the connection is lost during an upload, the node deletes its temporary files. If it cannot,
// the next upload does.
func TestTruncated(t *testing.T) {
	n := start(t, sshtest.Options{})
	ks := keys{"a": n.key(t, "a", "whole")}
	set := n.load(t, ks, All)
	argv := n.scriptCommand("apply", Drop, false)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(script + describeSet(set) + "10240\nwho")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "the input ended early") {
		t.Errorf("%v\n%s", err, out)
	}
	if files := n.files(t); len(files) != 0 {
		t.Errorf("%q", files)
	}
	if left, _ := filepath.Glob(filepath.Join(n.dir, "var/*")); len(left) != 0 {
		t.Errorf("%q", left)
	}
	left := filepath.Join(filepath.Dir(ks["a"].Path), ".a.nixbench-new")
	if err := os.MkdirAll(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.upload(t, ks, Pre)
	if diff := cmp.Diff(map[string]string{"keys/a": "600 whole"}, n.files(t)); diff != "" {
		t.Error(diff)
	}
}

// An upload can be cancelled at any time, with a readable error.
func TestCancelled(t *testing.T) {
	n := start(t, sshtest.Options{Handler: func(ctx context.Context, e *sshtest.Exec) int {
		io.CopyN(io.Discard, e.Stdin, 100)
		<-ctx.Done()
		return 1
	}})
	set := n.load(t, keys{"a": n.key(t, "a", strings.Repeat("secret", 1<<20))}, All)
	if _, err := n.host.Conn(t.Context()); err != nil { // a login may take longer than the time below
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("interrupted"))
	defer cancel()
	begin := time.Now()
	_, err := n.Upload(ctx, n.host, set)
	if err == nil || !strings.HasSuffix(err.Error(), ": interrupted") || !strings.HasPrefix(err.Error(), "web-1: upload keys on ") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// An error contains the step, and not the shell's loader.
func TestErrorsNameTheStep(t *testing.T) {
	n := start(t, sshtest.Options{Handler: func(_ context.Context, e *sshtest.Exec) int {
		io.WriteString(e.Stderr, "sh: out of memory\n")
		return 2
	}})
	set := n.load(t, keys{"a": n.key(t, "a", "x")}, All)
	on := fmt.Sprintf(" on 127.0.0.1:%d: exit status 2: sh: out of memory", n.server.Port())
	if _, err := n.Upload(t.Context(), n.host, set); fmt.Sprint(err) != "web-1: upload keys"+on {
		t.Errorf("upload: %v", err)
	}
	if _, err := n.Plan(t.Context(), n.host, set); fmt.Sprint(err) != "web-1: compare keys"+on {
		t.Errorf("plan: %v", err)
	}
}

// Invalid output of a node is an error, and never blocks the upload.
func TestNonsense(t *testing.T) {
	for _, said := range []string{"", "hello\n", "nixbench-keys 1\n", "nixbench-keys 2\nsend 7\nnext\n", "nixbench-keys 2\nsame -1\n",
		"nixbench-keys 1\nwhat 0\n", "nixbench-keys 2\nsend 0\nnext\ndone 1\n"} {
		n := start(t, sshtest.Options{Handler: func(_ context.Context, e *sshtest.Exec) int {
			io.CopyN(io.Discard, e.Stdin, int64(len(script)))
			io.WriteString(e.Stdout, said)
			return 0
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := n.Upload(ctx, n.host, n.load(t, keys{"a": n.key(t, "a", "x")}, All))
		if ctx.Err() != nil || err == nil || !strings.HasPrefix(err.Error(), "web-1: upload keys: ") {
			t.Errorf("%q: %v", said, err)
		}
	}
}

// Secrets are only sent through stdin: they are not in the command for the server, in any command
// of the script, or in messages.
func TestNoLeak(t *testing.T) {
	var mu sync.Mutex
	var seen strings.Builder
	stdin := &recorder{}
	n := start(t, sshtest.Options{Handler: func(ctx context.Context, e *sshtest.Exec) int {
		var out, trace bytes.Buffer
		mu.Lock()
		defer mu.Unlock()
		stdin.Reader = e.Stdin
		// With -x the shell prints each command.
		cmd := exec.CommandContext(ctx, e.Argv[0], append([]string{"-x"}, e.Argv[1:]...)...)
		in, err := cmd.StdinPipe()
		if err != nil {
			return 126
		}
		go func() {
			io.Copy(in, stdin)
			in.Close()
		}()
		cmd.Stdout, cmd.Stderr = io.MultiWriter(e.Stdout, &out), &trace
		err = cmd.Run()
		fmt.Fprintln(&seen, e.Line, out.String(), trace.String())
		if err != nil {
			return 1
		}
		return 0
	}})
	const text = "correct-horse"
	ks := keys{"a": n.key(t, "a", text), "b": n.key(t, "b", text, late, func(k *nixeval.Key) { k.User = "nixbench-nobody" })}
	n.runner = func(context.Context, ...string) ([]byte, error) { return []byte(text), nil }
	ks["c"] = n.key(t, "c", "", func(k *nixeval.Key) { k.Text, k.KeyCommand = nil, []string{"pass", "show", text} })
	set := n.load(t, ks, All)
	result, err := n.Upload(t.Context(), n.host, set)
	if err == nil {
		t.Error("b has no owner")
	}
	n.runner = func(context.Context, ...string) ([]byte, error) { return []byte(text), fmt.Errorf("exit status 1") }
	mu.Lock()
	defer mu.Unlock()
	_, loadErr := n.Load(t.Context(), "web-1", nixeval.Deployment{Keys: ks}, All)
	encoded, _ := json.Marshal(set)
	for what, said := range map[string]string{
		"the node": seen.String(), "the error": err.Error(), "the other error": fmt.Sprint(loadErr),
		"the events": fmt.Sprintf("%+v", n.events), "the result": fmt.Sprintf("%#v", result),
		"the set": fmt.Sprintf("%#v %+v %s", set, &set, encoded),
	} {
		if strings.Contains(said, text) {
			t.Errorf("%s has the secret:\n%s", what, said)
		}
	}
	if !strings.Contains(stdin.all(), text) || !strings.Contains(seen.String(), "+ ") || len(n.events) != 2 {
		t.Error("the test does not look where secrets are")
	}
}
