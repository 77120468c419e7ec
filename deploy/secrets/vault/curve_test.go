package vault

import (
	"bytes"
	"crypto/ecdh"
	"encoding/binary"
	"regexp"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/nixeval"
)

func decodeZ85(t *testing.T, text string) []byte {
	t.Helper()
	var out []byte
	for ; len(text) >= 5; text = text[5:] {
		n := uint32(0)
		for _, c := range text[:5] {
			digit := strings.IndexRune(z85, c)
			if digit < 0 {
				t.Fatalf("%q is no digit of Z85", c)
			}
			n = n*85 + uint32(digit)
		}
		out = binary.BigEndian.AppendUint32(out, n)
	}
	return out
}

// The example of ZeroMQ RFC 32.
func TestZ85(t *testing.T) {
	data := []byte{0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B}
	if got := encodeZ85(make([]byte, 8)); got != "0000000000" {
		t.Errorf("%q", got)
	}
	if got := encodeZ85(data); got != "HelloWorld" || !bytes.Equal(decodeZ85(t, got), data) {
		t.Errorf("%q", got)
	}
}

// A certificate has the form that Flux accepts: sections, quoted values, 40 characters for each key, and the public
// key belongs to the secret key.
func TestCurve(t *testing.T) {
	v := Open(t.TempDir())
	g := nixeval.Generated{Secret: "flux_curve", Kind: "curve", Part: "key"}
	text := part(t, v, g)
	m := regexp.MustCompile(`^(?:#.*\n)*\nmetadata\n    name = "flux-curve"\ncurve\n    public-key = "([^"\n]{40})"\n    secret-key = "([^"\n]{40})"\n$`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatalf("%s", text)
	}
	key, err := ecdh.X25519().NewPrivateKey(decodeZ85(t, m[2]))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(key.PublicKey().Bytes(), decodeZ85(t, m[1])) {
		t.Error("the keys do not belong together")
	}
	if !bytes.Equal(text, part(t, v, g)) {
		t.Error("it is generated twice")
	}
	if step, err := v.Rotate("flux_curve", nil); err != nil || step != Renewed || bytes.Equal(text, part(t, v, g)) {
		t.Errorf("not rotated: %v, %v", step, err)
	}
}
