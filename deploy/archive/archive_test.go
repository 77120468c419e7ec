package archive

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/keys"
)

// newState returns a state folder with a node, a client key, a generated secret and the record of a run.
func newState(t *testing.T) state.Dir {
	t.Helper()
	d := state.Dir(filepath.Join(t.TempDir(), ".nixbench", "demo"))
	change(t, d, "web-1")
	if _, err := keys.MakeClientKey(d); err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(string(d), "runs", "20260102T030405Z")
	if err := errors.Join(os.MkdirAll(d.Vault(), 0o700), os.MkdirAll(run, 0o700),
		os.WriteFile(filepath.Join(d.Vault(), "join-token.json"), []byte("abcdef.secret"), 0o600),
		os.WriteFile(filepath.Join(run, "run.json"), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return d
}

// change records a deployment to a node.
func change(t *testing.T, d state.Dir, node string) {
	t.Helper()
	lock := mustLock(t, d)
	store, err := lock.Store()
	if err == nil {
		err = store.Update(func(s *state.State) error {
			s.Confirm(node, state.Deployment{Path: "/nix/store/x", Generation: 1})
			return nil
		})
	}
	if err := errors.Join(err, lock.Unlock()); err != nil {
		t.Fatal(err)
	}
}

func mustLock(t *testing.T, d state.Dir) *state.Lock {
	t.Helper()
	lock, err := d.Lock(context.Background(), state.Self("test"))
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func newIdentity(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func export(t *testing.T, d state.Dir, file string, to ...age.Recipient) *Result {
	t.Helper()
	lock := mustLock(t, d)
	defer lock.Unlock()
	r, err := Export(lock, "demo", file, to)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func importInto(t *testing.T, d state.Dir, file string, force bool, ids ...age.Identity) (*Result, error) {
	t.Helper()
	lock := mustLock(t, d)
	defer lock.Unlock()
	return Import(lock, "demo", file, force, ids)
}

// digest returns the digest of a state, and fails the test if other users have access to its files.
func digest(t *testing.T, d state.Dir) string {
	t.Helper()
	if err := d.Verify(); err != nil {
		t.Error(err)
	}
	files, err := readFiles(d)
	if err != nil {
		t.Fatal(err)
	}
	return files.digest()
}

func TestRoundTrip(t *testing.T) {
	from, to, file, id := newState(t), state.Dir(filepath.Join(t.TempDir(), ".nixbench", "demo")), filepath.Join(t.TempDir(), "x.age"), newIdentity(t)
	export(t, from, file, id.Recipient())
	data, err := os.ReadFile(file)
	if err != nil || bytes.Contains(data, []byte("abcdef")) || bytes.Contains(data, []byte("PRIVATE KEY")) {
		t.Errorf("%v, or a secret is in clear in the file", err)
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	for _, changed := range []bool{true, false} {
		r, err := importInto(t, to, file, false, newIdentity(t), id)
		if err != nil || r.Changed != changed || r.Files != 3 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if digest(t, from) != digest(t, to) {
		t.Error("the states differ")
	}
	if _, err := os.Stat(filepath.Join(string(to), "runs")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("records of runs are imported: %v", err)
	}
}

// Two people exchange the state. An import succeeds if the state here was exported or imported, and has not changed since.
func TestConflicts(t *testing.T) {
	anna, ben, id := newState(t), state.Dir(filepath.Join(t.TempDir(), ".nixbench", "demo")), newIdentity(t)
	first, second := filepath.Join(t.TempDir(), "1.age"), filepath.Join(t.TempDir(), "2.age")
	export(t, anna, first, id.Recipient())
	if _, err := importInto(t, ben, first, false, id); err != nil {
		t.Fatal(err)
	}
	change(t, ben, "web-2")
	export(t, ben, second, id.Recipient())
	if _, err := importInto(t, anna, second, false, id); err != nil {
		t.Fatalf("anna has changed nothing since her export: %v", err)
	}
	change(t, anna, "web-3")
	before := digest(t, anna)
	if _, err := importInto(t, anna, second, false, id); failure.KindOf(err) != failure.Usage || !strings.Contains(fmt.Sprint(err), "has changed since") {
		t.Errorf("%v", err)
	}
	if digest(t, anna) != before {
		t.Error("the state has changed")
	}
	if r, err := importInto(t, anna, second, true, id); err != nil || !r.Changed || digest(t, anna) != digest(t, ben) {
		t.Errorf("with force: %+v, %v", r, err)
	}
}

// encrypt writes an encrypted text.
func encrypt(t *testing.T, to age.Recipient, text string) string {
	t.Helper()
	var b bytes.Buffer
	e, err := age.Encrypt(&b, to)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bad.age")
	_, err = e.Write([]byte(text))
	if err := errors.Join(err, e.Close(), os.WriteFile(file, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRefusedImports(t *testing.T) {
	d, id := newState(t), newIdentity(t)
	to := id.Recipient()
	made := func(change func(*content)) string {
		c := content{Header: Header{Version: 1, Cluster: "demo"}, Files: files{"state.json": []byte(`{"version":3,"nodes":{},"intents":[]}`)}}
		change(&c)
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return encrypt(t, to, string(text))
	}
	if _, err := importInto(t, state.Dir(filepath.Join(t.TempDir(), "demo")), made(func(*content) {}), false, id); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.MakePlanKey(d); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(t.TempDir(), "good.age")
	export(t, d, good, to)
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte) string {
		file := filepath.Join(t.TempDir(), "x.age")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	flipped := bytes.Clone(data)
	flipped[len(data)/2] ^= 1
	before := digest(t, d)
	for name, c := range map[string]struct{ file, want string }{
		"another identity": {encrypt(t, newIdentity(t).Recipient(), ""), "it is not encrypted to any of the given identities, but to 1 others (X25519)"},
		"no file":          {filepath.Join(t.TempDir(), "none"), "no such file"},
		"not encrypted":    {write([]byte("hello")), "cannot be decrypted"},
		"cut":              {write(data[:len(data)-10]), "is damaged"},
		"changed":          {write(flipped), "is damaged"},
		"empty":            {encrypt(t, to, ""), "is not an export of nixbench"},
		"newer":            {encrypt(t, to, `{"version":2}`), "it has version 2"},
		"another cluster":  {made(func(c *content) { c.Cluster = "other" }), "it is the state of cluster other, and the hive is that of cluster demo"},
		"a path":           {made(func(c *content) { c.Files["../../x"] = []byte("x") }), "outside of a state folder"},
		"no part":          {made(func(c *content) { c.Files["runs/x"] = []byte("x") }), "not part of a state"},
		"no state":         {made(func(c *content) { delete(c.Files, "state.json") }), "contains no state.json"},
		"a newer state":    {made(func(c *content) { c.Files["state.json"] = []byte(`{"version":99}`) }), "it has version 99, and this nixbench reads version 3"},
	} {
		_, err := importInto(t, d, c.file, true, id)
		if err == nil || !strings.Contains(err.Error(), c.want) || failure.KindOf(err) != failure.Usage {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if digest(t, d) != before {
			t.Fatalf("%s: the state has changed", name)
		}
	}
}

// The content of an export is refused, or all of its files are inside of the folder.
func FuzzDecode(f *testing.F) {
	c := content{Header: Header{Version: 1, Cluster: "demo"}, Files: files{"state.json": []byte(`{"version":3,"nodes":{},"intents":[]}`), "secrets/x": nil}}
	text, err := json.Marshal(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1,"cluster":"demo","contents":{"../x":""}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := decode(bytes.NewReader(text), "demo")
		if err != nil {
			return
		}
		for name := range c.Files {
			if !filepath.IsLocal(name) || name == "lock" {
				t.Errorf("%q was accepted", name)
			}
		}
	})
}

func TestRefusedExports(t *testing.T) {
	d, to := newState(t), newIdentity(t).Recipient()
	lock := mustLock(t, d)
	defer lock.Unlock()
	hive := filepath.Join(t.TempDir(), "hive.nix")
	if err := os.WriteFile(hive, []byte("{ }"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Export(lock, "demo", hive, []age.Recipient{to}); err == nil || !strings.Contains(err.Error(), "is not overwritten") {
		t.Error(err)
	}
	if data, _ := os.ReadFile(hive); string(data) != "{ }" {
		t.Errorf("it contains %q", data)
	}
	none := state.Dir(filepath.Join(t.TempDir(), "demo"))
	if _, err := Export(mustLock(t, none), "demo", hive+".age", []age.Recipient{to}); err == nil || !strings.Contains(err.Error(), "there is no state of demo") {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(hive)); len(left) != 1 {
		t.Errorf("files are left: %v", left)
	}
}

func TestSSHKeys(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	recipients := filepath.Join(dir, "team.txt")
	if err := os.WriteFile(recipients, []byte("# team\n\n"+string(ssh.MarshalAuthorizedKey(key))), 0o600); err != nil {
		t.Fatal(err)
	}
	to, err := Recipients(nil, []string{recipients})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "x.age")
	export(t, newState(t), file, to...)
	for _, passphrase := range []string{"", "secret"} {
		var block *pem.Block
		if passphrase == "" {
			block, err = ssh.MarshalPrivateKey(private, "")
		} else {
			block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, "key"+passphrase)
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		asked := false
		ids, err := Identities([]string{name}, func(string) ([]byte, error) { asked = true; return []byte(passphrase), nil })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := importInto(t, state.Dir(filepath.Join(t.TempDir(), "demo")), file, false, ids...); err != nil || asked != (passphrase != "") {
			t.Errorf("passphrase %q: %v, asked %v", passphrase, err, asked)
		}
	}
}

// Errors about keys do not contain the keys.
func TestBadKeys(t *testing.T) {
	secret := newIdentity(t).String()
	file := filepath.Join(t.TempDir(), "keys")
	for text, want := range map[string]string{
		secret:                   "keys, line 1: it is not a recipient",
		"\nage1xyz":              "keys, line 2: it is not a recipient",
		"ssh-ed25519 AAAA":       "it is not a recipient",
		"ssh-dss AAAAB3NzaC1kc3": "it is not a recipient",
		"# nothing":              "there is no recipient",
	} {
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Recipients(nil, []string{file}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{secret + "x", "AGE-PLUGIN-YUBIKEY-1X", "", "-----BEGIN OPENSSH PRIVATE KEY-----\nx"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Identities([]string{file}, nil); failure.KindOf(err) != failure.Usage || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestImportRefusesPaths(t *testing.T) {
	for _, file := range []string{"", ".", "..", "../x", "secrets/../../x", "/etc/passwd", "secrets//x", "secrets/", ".import.json", "secrets/.x", `secrets\x`,
		"lock", "exchanged", "runs", "gcroots", "benchmarks", "secrets", "secrets/forward", "gcroots/web", "benchmarks/x/state.json", "runs/x", "runs/20260102T030405Z/run.json", "secrets/forward/kubeconfig", "secrets/forward/1/kubeconfig", "secrets/plan_key"} {
		if err := checkPath(file); err == nil {
			t.Errorf("%q was accepted", file)
		}
	}
	for _, file := range []string{"state.json", "kubeconfig", "secrets/hosts/w-1"} {
		if err := checkPath(file); err != nil {
			t.Errorf("%q: %v", file, err)
		}
	}
}
