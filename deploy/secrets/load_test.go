package secrets

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
)

func TestLoad(t *testing.T) {
	n := start(t, sshtest.Options{})
	var ran [][]string
	n.runner = func(_ context.Context, argv ...string) ([]byte, error) {
		ran = append(ran, argv)
		return []byte(strings.Repeat("x", len(ran))), nil
	}
	command := func(k *nixeval.Key) { k.Text, k.KeyCommand = nil, []string{"openssl", "rand"} }
	set := n.load(t, keys{"a": n.key(t, "a", "", command), "b": n.key(t, "b", "", command), "c": n.key(t, "c", "", command, late)}, Pre)
	if len(ran) != 2 || string(set.Keys[0].content()) == string(set.Keys[1].content()) {
		t.Errorf("two keys of one command: %q", ran)
	}
	if len(set.hivePaths) != 3 {
		t.Errorf("all keys stay on the node, not only %q", set.hivePaths)
	}

	generated := func(k *nixeval.Key) {
		k.Text, k.Generated = nil, &nixeval.Generated{Secret: "s", Kind: "token", Part: "text"}
	}
	n.Generated = func(g nixeval.Generated) ([]byte, error) { return []byte(g.Secret + g.Part), nil }
	if set := n.load(t, keys{"a": n.key(t, "a", "", generated)}, Pre); string(set.Keys[0].content()) != "stext" {
		t.Errorf("a generated key: %q", set.Keys[0].content())
	}
	n.Generated = nil

	absent := filepath.Join(t.TempDir(), "absent")
	folder := t.TempDir()
	for want, change := range map[string]func(*nixeval.Key){
		"web-1.deployment.keys.a: 0 of text, keyFile, keyCommand and generated are set; set exactly one of them": func(k *nixeval.Key) { k.Text = nil },
		"web-1.deployment.keys.a: generated: this command makes no secrets":                                      generated,
		"web-1.deployment.keys.a: 2 of text, keyFile, keyCommand and generated are set; set exactly one of them": func(k *nixeval.Key) { k.KeyCommand = []string{"x"} },
		"web-1.deployment.keys.a: keyFile: " + absent + " does not exist on this machine":                        func(k *nixeval.Key) { k.Text, k.KeyFile = nil, &absent },
		"web-1.deployment.keys.a: keyFile: read " + folder + ": it is a folder, not a regular file":              func(k *nixeval.Key) { k.Text, k.KeyFile = nil, &folder },
		`web-1.deployment.keys.a: permissions: "rw" is not an octal mode from "0000" to "0777", such as "0600"`:  mode("rw"),
		`web-1.deployment.keys.a: permissions: "0908" is not`:                                                    mode("0908"),
		`web-1.deployment.keys.a: permissions: "77777" is not`:                                                   mode("77777"),
		`web-1.deployment.keys.a: name: "x/y" is not a file name; use destDir`:                                   func(k *nixeval.Key) { k.Name = "x/y" },
		`web-1.deployment.keys.a: name: ".." is not a file name`:                                                 func(k *nixeval.Key) { k.Name = ".." },
		`web-1.deployment.keys.a: name: "a\nb" has the character U+000A`:                                         func(k *nixeval.Key) { k.Name = "a\nb" },
		`web-1.deployment.keys.a: destDir: "keys/a" is not an absolute path`:                                     func(k *nixeval.Key) { k.DestDir = "keys" },
		`web-1.deployment.keys.a: destDir: "/nix/store/a" is in the store`:                                       func(k *nixeval.Key) { k.DestDir = "/nix//store" },
		`web-1.deployment.keys.a: user: "x:y" is not a name or number`:                                           func(k *nixeval.Key) { k.User = "x:y" },
		`web-1.deployment.keys.a: group: "" is not a name or number`:                                             func(k *nixeval.Key) { k.Group = "" },
		`web-1.deployment.keys.z: it has the same path as the key a, ` + n.dir + `/run/keys/other;`:              func(k *nixeval.Key) { k.Name = "other" },
	} {
		// The wrong key is not selected by when.
		ks := keys{"a": n.key(t, "a", "1", change), "z": n.key(t, "other", "2", late)}
		when := Post
		if strings.Contains(want, "keyFile: ") || strings.Contains(want, "generated: ") {
			when = All // contents are read only when they are needed
		}
		_, err := n.Load(t.Context(), "web-1", nixeval.Deployment{Keys: ks}, when)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	if len(ran) != 2 {
		t.Errorf("commands ran for hives that are wrong: %q", ran[2:])
	}
}

func TestExec(t *testing.T) {
	u := &Uploader{}
	load := func(argv ...string) (string, error) {
		set, err := u.Load(t.Context(), "n", nixeval.Deployment{Keys: keys{"k": {Name: "k", KeyCommand: argv,
			DestDir: "/run/keys", User: "root", Group: "root", Permissions: "0600", UploadAt: preActivation}}}, All)
		if err != nil {
			return "", err
		}
		return string(set.Keys[0].content()), nil
	}
	if got, err := load("printf", `a\000b`); got != "a\x00b" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := load("sh", "-c", "echo hunter2; echo hunter3 >&2; exit 3"); err == nil ||
		err.Error() != "n.deployment.keys.k: keyCommand: sh failed: exit status 3; run it by hand to see why" {
		t.Error(err)
	}
	if _, err := load("nixbench-no-such-program"); err == nil || !strings.HasSuffix(err.Error(), "nixbench-no-such-program is not installed, or not on PATH") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	if _, err := u.Load(ctx, "n", nixeval.Deployment{Keys: keys{"k": {Name: "k", KeyCommand: []string{"sleep", "9"},
		DestDir: "/run/keys", User: "root", Group: "root", Permissions: "0600", UploadAt: preActivation}}}, All); err == nil || !strings.HasSuffix(err.Error(), "interrupted") {
		t.Error(err)
	}
}

// The wait for a slow keyCommand is reported with node, key and program. Its arguments may be secret.
func TestSlowKeyCommandIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []event.Event
		u := &Uploader{Send: func(e event.Event) { got = append(got, e) }, runner: func(_ context.Context, argv ...string) ([]byte, error) {
			if argv[0] == "slow" {
				time.Sleep(time.Minute)
			}
			return []byte("x"), nil
		}}
		key := func(argv ...string) nixeval.Key {
			return nixeval.Key{Name: argv[0], KeyCommand: argv, DestDir: "/run/keys", User: "root", Group: "root", Permissions: "0600", UploadAt: preActivation}
		}
		begin := time.Now()
		if _, err := u.Load(t.Context(), "web-1", nixeval.Deployment{Keys: keys{"a": key("fast", "hunter2"), "b": key("slow", "hunter2")}}, All); err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || got[0].Kind != event.Waiting || got[1].Kind != event.WaitEnd {
			t.Fatalf("%+v", got)
		}
		if e := got[0]; e.Node != "web-1" || e.Phase != event.Keys || e.Text != "deployment.keys.b.keyCommand: slow" || !e.Until.Equal(begin.Add(keyTimeout)) {
			t.Errorf("%+v", e)
		}
	})
}
