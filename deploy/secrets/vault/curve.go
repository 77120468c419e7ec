package vault

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/ascii85"
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

// encodeZ85 encodes data in Z85: each four bytes become five characters. The length of data must be a multiple of four. Z85 is Ascii85
// with other digits, and without its abbreviation z for four zero bytes.
func encodeZ85(data []byte) string {
	out := make([]byte, ascii85.MaxEncodedLen(len(data)))
	text := string(out[:ascii85.Encode(out, data)])
	return strings.Map(func(digit rune) rune { return rune(z85[digit-'!']) }, strings.ReplaceAll(text, "z", "!!!!!"))
}
