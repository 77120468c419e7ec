package vault

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

func part(t *testing.T, v *Vault, g nixeval.Generated) []byte {
	t.Helper()
	p, err := v.Part(g)
	if err != nil {
		t.Fatal(err)
	}
	if len(p) == 0 {
		t.Fatalf("%+v is empty", g)
	}
	return p
}

// A generated secret is the same for the next process. Another name is another secret.
func TestSecretsStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	for _, g := range []nixeval.Generated{
		{Secret: "t", Kind: "token", Part: "text"},
		{Secret: "r", Kind: "random", Part: "raw", Bytes: 1024},
		{Secret: "k", Kind: "key-pair", Part: "private"},
		{Secret: "c", Kind: "ca", Part: "key"},
		{Secret: "e", Kind: "key-ring", Part: "keys", Bytes: 32},
	} {
		v := Open(dir)
		first := part(t, v, g)
		if !bytes.Equal(first, part(t, v, g)) || !bytes.Equal(first, part(t, Open(dir), g)) {
			t.Errorf("%s: not the same secret again", g.Kind)
		}
		other := g
		other.Secret += "2"
		if bytes.Equal(first, part(t, v, other)) {
			t.Errorf("%s: two names, one secret", g.Kind)
		}
		_, err := v.Rotate(g.Secret, nil)
		if (failure.KindOf(err) == failure.Usage) != (g.Kind == "ca" || g.Kind == "key-pair") {
			t.Fatalf("rotate a %s: %v", g.Kind, err)
		} else if err != nil {
			continue
		}
		if again := part(t, v, g); bytes.Equal(first, again) || !bytes.Equal(again, part(t, Open(dir), g)) {
			t.Errorf("%s: not rotated, or not kept", g.Kind)
		}
	}
	for _, name := range []string{"t", "r", "k", "c", "e"} {
		info, err := os.Stat(filepath.Join(dir, name+".json"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info.Mode(), err)
	}
}

// During a rotation, every node can decrypt the data of every other one, as long as each has this ring
// or the previous one.
func TestRing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	g := nixeval.Generated{Secret: "e", Kind: "key-ring", Part: "keys", Bytes: 32}
	before := string(part(t, Open(dir), g))
	order := func(ring string) string {
		var names []string
		for line := range strings.Lines(ring) {
			name, key, ok := strings.Cut(line, " ")
			if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(key)); !ok || err != nil || len(raw) != 32 {
				t.Fatalf("%q: %v", line, err)
			}
			names = append(names, name)
		}
		return strings.Join(names, " ")
	}
	for _, want := range []struct {
		step  Step
		order string
	}{
		{Added, "key1 key2"}, {Turned, "key2 key1"}, {Added, "key2 key1 key3"}, {Turned, "key3 key2 key1"},
	} {
		sum := sha256.Sum256([]byte(before))
		asked := ""
		step, err := Open(dir).Rotate("e", func(sum string) error { asked = sum; return nil })
		if err != nil || step != want.step {
			t.Fatalf("%s: %v, %v", want.order, step, err)
		}
		if whole := hex.EncodeToString(sum[:]); step == Turned && asked != whole {
			t.Errorf("%s: it was asked who has %q, want %q", want.order, asked, whole)
		}
		after := string(part(t, Open(dir), g))
		if order(after) != want.order {
			t.Errorf("%q, want %s", order(after), want.order)
		}
		for line := range strings.Lines(before) {
			if !strings.Contains(after, line) {
				t.Errorf("%s: a key is lost, or has another name", want.order)
			}
		}
		if used, _, _ := strings.Cut(after, " "); !strings.Contains(before, used+" ") {
			t.Errorf("%s: %s is used, and no control plane knew it before", want.order, used)
		}
		before = after
	}
	// A node that does not have the newest key yet prevents its use.
	if _, err := Open(dir).Rotate("e", nil); err != nil {
		t.Fatal(err)
	}
	before = string(part(t, Open(dir), g))
	behind := errors.New("cp-2 is behind")
	if _, err := Open(dir).Rotate("e", func(string) error { return behind }); !errors.Is(err, behind) {
		t.Error(err)
	}
	if after := string(part(t, Open(dir), g)); after != before {
		t.Error("it is used all the same")
	}
}

// Look reads existing secrets and writes nothing.
func TestLook(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	g := nixeval.Generated{Secret: "t", Kind: "token", Part: "text"}
	v := Open(dir)
	v.ReadOnly = true
	if !bytes.Equal(part(t, v, g), part(t, v, g)) {
		t.Error("made up twice")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("looking has made a secret")
	}
	if real := part(t, Open(dir), g); !bytes.Equal(real, part(t, &Vault{ReadOnly: true, dir: dir, cache: map[string]*secret{}}, g)) {
		t.Error("the secret that is there was not seen")
	}
}

func TestTokenLooksLikeKubeadms(t *testing.T) {
	token := part(t, Open(t.TempDir()), nixeval.Generated{Secret: "t", Kind: "token", Part: "text"})
	if !regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`).Match(token) {
		t.Errorf("%q", token)
	}
}

// The parts of a CA match, and it can sign.
func TestAuthority(t *testing.T) {
	v := Open(t.TempDir())
	g := nixeval.Generated{Secret: "cluster-ca", Kind: "ca", Part: "certificate"}
	certificate := part(t, v, g)
	g.Part = "key"
	private := part(t, v, g)
	cert, err := parseCertificate(certificate)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(private)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !key.PublicKey.Equal(cert.PublicKey.(*ecdsa.PublicKey)) {
		t.Error("certificate and key do not belong together")
	}
	if err := cert.CheckSignatureFrom(cert); err != nil || !cert.IsCA {
		t.Errorf("it cannot sign: %v", err)
	}
	list, err := v.List()
	if err != nil || len(list) != 1 || list[0].Expires == nil || list[0].Expires.Before(time.Now().AddDate(9, 0, 0)) {
		t.Errorf("%+v, %v", list, err)
	}
	if data, err := json.Marshal(list); err != nil || bytes.Contains(data, private[30:60]) {
		t.Errorf("the list tells more than it may: %s, %v", data, err)
	}
	hash, err := PublicKeyHash(certificate)
	if err != nil || !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(hash) {
		t.Errorf("%q, %v", hash, err)
	}
}

func TestPublicKeyHashOfKnownCertificate(t *testing.T) {
	// Generated with openssl, which prints the same hash.
	data, err := os.ReadFile("testdata/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/ca.hash")
	if err != nil {
		t.Fatal(err)
	}
	if hash, err := PublicKeyHash(data); err != nil || hash != strings.TrimSpace(string(want)) {
		t.Errorf("%s, %v; openssl says %s", hash, err, want)
	}
}

func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	v := Open(dir)
	part(t, v, nixeval.Generated{Secret: "t", Kind: "token", Part: "text"})
	for _, c := range []struct {
		g    nixeval.Generated
		want string
	}{
		{nixeval.Generated{Secret: "t", Kind: "ca", Part: "key"}, "of the kind token already"},
		{nixeval.Generated{Secret: "t", Kind: "token", Part: "key"}, `no part "key"; it has text`},
		{nixeval.Generated{Secret: "../x", Kind: "token", Part: "text"}, "no name for a secret"},
		{nixeval.Generated{Secret: "r", Kind: "random", Part: "raw", Bytes: 1}, "bytes: 1"},
		{nixeval.Generated{Secret: "q", Kind: "quantum", Part: "raw"}, "none of token"},
	} {
		if _, err := v.Part(c.g); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.g, err, c.want)
		}
	}
	if _, err := v.Rotate("u", nil); err == nil || !strings.Contains(err.Error(), "there are t") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "d.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Part(nixeval.Generated{Secret: "d", Kind: "token", Part: "text"}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged secret must not be replaced in silence: %v", err)
	}
	if _, err := Open("/proc/nothing").Part(nixeval.Generated{Secret: "t", Kind: "token", Part: "text"}); failure.KindOf(err) != failure.StateFolder {
		t.Errorf("a secret that cannot be stored was returned, or the error is not one of the state folder: %v", err)
	}
}

// Issue signs a certificate for one client, which is valid for a day. It does not generate an authority.
func TestIssue(t *testing.T) {
	v := Open(t.TempDir())
	if _, _, _, err := v.Issue("ca", "someone", "some"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without an authority: %v", err)
	}
	part(t, v, nixeval.Generated{Secret: "ca", Kind: "ca", Part: "key"})
	ca, certificate, key, err := v.Issue("ca", "someone", "some")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(certificate, key); err != nil {
		t.Error(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	cert, err := parseCertificate(certificate)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if cert.Subject.String() != "CN=someone,O=some" || time.Until(cert.NotAfter) > clientValidity || cert.IsCA {
		t.Errorf("issued: %s until %s, an authority: %v", cert.Subject, cert.NotAfter, cert.IsCA)
	}
}
