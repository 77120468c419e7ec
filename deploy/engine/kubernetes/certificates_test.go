package kubernetes

import (
	"os"
	"testing"
	"time"
)

func TestParseCertificates(t *testing.T) {
	pem, err := os.ReadFile("../../secrets/vault/testdata/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	all := parseCertificates("file /etc/kubernetes/pki/apiserver.crt\n" + string(pem) +
		"file /etc/kubernetes/pki/etcd/peer.crt\nwhat is this\nfile /var/lib/kubelet/pki/kubelet-client-current.pem\n" + string(pem) + string(pem))
	if len(all) != 2 || all[0].Name != "apiserver.crt" || all[1].Name != "kubelet-client-current.pem" {
		t.Fatalf("%+v", all)
	}
	if days := all[0].Ends.Sub(all[0].Begins) / (24 * time.Hour); days != 3650 {
		t.Errorf("it lives for %d days", days)
	}
	if got := parseCertificates(""); got != nil {
		t.Errorf("of a node that has not joined: %v", got)
	}
}
