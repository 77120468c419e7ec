package vault

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
)

// generateCurve returns a new CurveZMQ key pair as one file, with both keys. The format of the file is ZPL, in which `flux keygen`
// and czmq write such key pairs.
func generateCurve(name string) ([]byte, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	// The file contains the name as metadata. Flux accepts no underscore in this name.
	name = strings.ReplaceAll(name, "_", "-")
	return fmt.Appendf(nil, `#  ZeroMQ CURVE **Secret** Certificate
#  DO NOT DISTRIBUTE

metadata
    name = "%s"
curve
    public-key = "%s"
    secret-key = "%s"
`, name, encodeZ85(key.PublicKey().Bytes()), encodeZ85(key.Bytes())), nil
}

// z85 contains the digits of Z85 (ZeroMQ RFC 32).
const z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

// encodeZ85 encodes data in Z85: each four bytes become five characters. The length of data must be a multiple of four.
func encodeZ85(data []byte) string {
	out := make([]byte, 0, len(data)/4*5)
	for ; len(data) >= 4; data = data[4:] {
		n := binary.BigEndian.Uint32(data)
		var digits [5]byte
		for i := len(digits) - 1; i >= 0; i-- {
			digits[i] = z85[n%uint32(len(z85))]
			n /= uint32(len(z85))
		}
		out = append(out, digits[:]...)
	}
	return string(out)
}
