package kubernetes

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAccessNotes(t *testing.T) {
	ends := time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if got := accessNotes(file, ends); got != nil {
		t.Errorf("there is no kubeconfig, and the notes are %q", got)
	}
	cert := base64.StdEncoding.EncodeToString([]byte(leaf(t, ends.AddDate(-1, 0, 0), ends)))
	config := `{"clusters":[{"cluster":{"server":"https://192.0.2.1:6443"}}],"users":[{"user":{"client-certificate-data":"` + cert + `","client-key-data":"S0VZ"}}]}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := accessNotes(file, ends.AddDate(0, 0, -31)); got != nil {
		t.Errorf("a month and a day before: %q", got)
	}
	if got := accessNotes(file, ends.AddDate(0, 0, -29)); len(got) != 1 || got[0] != "kubeconfig: its certificate ends on 2027-05-01; nixbench kubeconfig writes another" {
		t.Errorf("near its end: %q", got)
	}
}
