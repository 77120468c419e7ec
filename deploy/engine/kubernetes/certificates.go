package kubernetes

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// Certificates implements [engine.Certified]. It returns the certificates whose keys are on the node: the kubelet's client
// certificate, and on a control plane all certificates below /etc/kubernetes/pki. It reads no keys. From a file with a
// certificate and a key, it reads only the certificate.
func (e *Engine) Certificates(ctx context.Context, node string) ([]engine.Certificate, error) {
	// A node that has not joined has none of these files. sed prints only the certificates, because
	// kubelet-client-current.pem also contains a private key.
	const script = `for file in /etc/kubernetes/pki/*.key /etc/kubernetes/pki/etcd/*.key /var/lib/kubelet/pki/kubelet-client-current.pem; do
  case $file in *.key) file=${file%key}crt ;; esac
  if [ -e "$file" ]; then echo "file $file"; sed -n '/-BEGIN CERTIFICATE-/,/-END CERTIFICATE-/p' "$file"; fi
done`
	out, err := e.Command(ctx, node, "sh", "-c", script)
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	all := parseCertificates(string(out))
	s, err := e.settings()
	for i, c := range all {
		all[i].Remedy = "on that node, kubeadm certs renew all, then reboot it"
		switch {
		case c.Authority:
			all[i].Remedy = "see docs/kubernetes.md"
		case err != nil:
		case strings.HasPrefix(c.Name, "kubelet-"):
			// The kubelet renews its certificate at a random time between 70 % and 90 % of the lifetime.
			all[i].Renewer, all[i].Due = "kubelet.service", c.Begins.Add(c.Ends.Sub(c.Begins)*9/10)
		case s.RenewBefore > 0:
			all[i].Renewer, all[i].Due = renewalUnit, c.Ends.AddDate(0, 0, -s.RenewBefore)
		}
	}
	return all, nil
}

// renewalUnit is the systemd unit on a control plane that renews the certificates of the control plane.
const renewalUnit = "nixbench-kubernetes-certificates.service"

// parseCertificates parses text, the contents of PEM files, each after a line "file PATH". It returns the first certificate of
// each file, and leaves out files without a valid certificate.
func parseCertificates(text string) []engine.Certificate {
	var all []engine.Certificate
	for _, part := range strings.Split(text, "file /")[1:] {
		path, rest, _ := strings.Cut(part, "\n")
		cert := parseCertificate([]byte(rest)) // further certificates in the file are those of the issuers
		if cert == nil {
			continue
		}
		name := strings.TrimPrefix(strings.TrimPrefix(path, "etc/kubernetes/pki/"), "var/lib/kubelet/pki/")
		all = append(all, engine.Certificate{Name: name, Authority: cert.IsCA,
			Begins: cert.NotBefore.UTC().Truncate(time.Second), Ends: cert.NotAfter.UTC().Truncate(time.Second)})
	}
	return all
}

// parseCertificate returns the first certificate in a PEM text, or nil.
func parseCertificate(text []byte) *x509.Certificate {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	cert, _ := x509.ParseCertificate(block.Bytes)
	return cert
}
