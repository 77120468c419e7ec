package vault

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/ascii85"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/nixbench/nixbench/nixeval"
)

// generateParts generates a secret and returns its parts by name, such as certificate and key.
func generateParts(g nixeval.Generated) (map[string][]byte, error) {
	switch g.Kind {
	case "token":
		// The token has a public id and a secret part. A bootstrap token, with which nodes join a Kubernetes cluster, has this
		// form.
		text := strings.ToLower(rand.Text()) // 26 letters and digits
		return map[string][]byte{"text": []byte(text[:6] + "." + text[6:22])}, nil
	case "random", "key-ring":
		raw, err := randomBytes(g.Bytes)
		if err != nil {
			return nil, err
		}
		if g.Kind == "key-ring" {
			return map[string][]byte{"keys": ring{}.withKey(raw).text()}, nil
		}
		return map[string][]byte{"raw": raw, "base64": []byte(base64.StdEncoding.EncodeToString(raw))}, nil
	case "key-pair":
		key, private, err := newKey()
		if err != nil {
			return nil, err
		}
		public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
		if err != nil {
			return nil, err
		}
		return map[string][]byte{"private": private, "public": encodePEM("PUBLIC KEY", public)}, nil
	case "ca":
		return generateAuthority(g.Secret)
	case "curve":
		return generateCurve(g.Secret)
	}
	return nil, fmt.Errorf("kind: %q is none of token, random, key-ring, key-pair, ca and curve", g.Kind)
}

func randomBytes(n int) ([]byte, error) {
	if n < 16 || n > 1<<20 {
		return nil, fmt.Errorf("bytes: %d; use 16 to 1048576", n)
	}
	raw := make([]byte, n)
	_, _ = rand.Read(raw) // never fails
	return raw, nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, encodePEM("EC PRIVATE KEY", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// caYears is the validity of a CA certificate in years.
const caYears = 10

// generateAuthority generates a CA certificate and its private key.
func generateAuthority(name string) (map[string][]byte, error) {
	key, private, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotAfter:              time.Now().AddDate(caYears, 0, 0).UTC(),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{name},
	}
	certificate, err := signCertificate(template, template, key, key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"certificate": certificate, "key": private}, nil
}

// signCertificate returns a certificate for the public key of `key`, in PEM, with a random serial number. The issuer signs it with
// issuerKey.
func signCertificate(template, issuer *x509.Certificate, key *ecdsa.PrivateKey, issuerKey crypto.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	// Make the certificate valid since yesterday, because the clocks of nodes that have just booted may be behind.
	template.NotBefore = time.Now().Add(-24 * time.Hour).UTC()
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, issuerKey)
	return encodePEM("CERTIFICATE", der), err
}

// clientValidity is the validity of a certificate that [Vault.Issue] returns.
const clientValidity = 24 * time.Hour

// Issue signs a client certificate for a user in a group. authority is the name of the secret with the certificate authority that
// signs it. Issue returns the certificate of the authority, the client's certificate, and the client's new private key.
func (v *Vault) Issue(authority, user, group string) (ca, certificate, key []byte, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, err := v.load(authority)
	var issuer tls.Certificate
	if err == nil {
		issuer, err = tls.X509KeyPair(s.Parts["certificate"], s.Parts["key"])
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("the authority %s: %w", authority, err)
	}
	own, key, err := newKey()
	if err != nil {
		return nil, nil, nil, err
	}
	certificate, err = signCertificate(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: []string{group}},
		NotAfter:    time.Now().Add(clientValidity).UTC(),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, issuer.Leaf, own, issuer.PrivateKey)
	return s.Parts["certificate"], certificate, key, err
}

// PublicKeyHash returns the SHA-256 of the public key in a PEM certificate, in the form sha256:4f2a…
func PublicKeyHash(certificate []byte) (string, error) {
	cert, err := parseCertificate(certificate)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(cert.RawSubjectPublicKeyInfo)), nil
}

func parseCertificate(certificate []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(certificate)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("it is not a certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// expiryOf returns the time at which a secret's certificate expires, or nil if the secret contains none.
func expiryOf(s *secret) *time.Time {
	cert, err := parseCertificate(s.Parts["certificate"])
	if err != nil {
		return nil
	}
	return &cert.NotAfter
}

// generateCurve returns a new CurveZMQ key pair as one part: a file with both keys. The format of the file is ZPL, in which `flux keygen`
// and czmq write such key pairs.
func generateCurve(name string) (map[string][]byte, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	// The file contains the name as metadata. Flux accepts no underscore in this name.
	name = strings.ReplaceAll(name, "_", "-")
	return map[string][]byte{"key": fmt.Appendf(nil, `#  ZeroMQ CURVE **Secret** Certificate
#  DO NOT DISTRIBUTE

metadata
    name = "%s"
curve
    public-key = "%s"
    secret-key = "%s"
`, name, encodeZ85(key.PublicKey().Bytes()), encodeZ85(key.Bytes()))}, nil
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
