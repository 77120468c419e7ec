package vault

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
)

// generateCurve returns a key pair of CurveZMQ as a file in ZPL, the format in which `flux keygen` and czmq write such a
// pair. The file contains both keys.
func generateCurve(name string) ([]byte, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	// The file contains the name as metadata, in which Flux accepts no underscore.
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

// encodeZ85 encodes data whose length is a multiple of four: each four bytes become five characters.
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
