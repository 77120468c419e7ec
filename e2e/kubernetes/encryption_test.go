package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// place_encryption writes a node's encryption keys: the first key of the file that it was given
// encrypts, and no earlier key is dropped.
func TestPlaceEncryption(t *testing.T) {
	fixture.Require(t, "bash", "jq")
	script, err := os.ReadFile("../../modules/kubernetes/scripts/library/pki.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	given, placed := filepath.Join(dir, "given"), filepath.Join(dir, "pki/nixbench-encryption.json")
	if err := os.Mkdir(filepath.Dir(placed), 0o700); err != nil {
		t.Fatal(err)
	}
	// place runs it as a system whose ENCRYPTION_SUM is the hash of this text, and reports whether it
	// succeeded.
	place := func(system string) bool {
		t.Helper()
		sum := ""
		if system != "" {
			bytes := sha256.Sum256([]byte(system))
			sum = hex.EncodeToString(bytes[:])
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-c", `set -u
set -o pipefail
records=$DIR
report_phase() { echo waits; exit 7; }
write_record() { printf '%s\n' "$2" >"$records/$1"; }
`+strings.ReplaceAll(string(script), "/etc/kubernetes/pki", filepath.Dir(placed))+"\ninstall_encryption_config")
		cmd.WaitDelay = time.Second
		cmd.Env = append(os.Environ(), "DIR="+dir, "ENCRYPTION_KEY="+given, "ENCRYPTION_SUM="+sum, "ENCRYPTED=secrets configmaps")
		out, err := cmd.CombinedOutput()
		if err == nil && len(out) > 0 || err != nil && string(out) != "waits\n" {
			t.Fatalf("%v\n%s", err, out)
		}
		return err == nil
	}
	keys := func() string {
		t.Helper()
		var c struct {
			Resources []struct {
				Resources []string
				Providers []struct {
					Secretbox *struct {
						Keys []struct{ Name, Secret string }
					}
					Identity *struct{}
				}
			}
		}
		data, err := os.ReadFile(placed)
		if err == nil {
			err = json.Unmarshal(data, &c)
		}
		info, _ := os.Stat(placed)
		if err != nil || len(c.Resources) != 1 || len(c.Resources[0].Resources) != 2 || len(c.Resources[0].Providers) != 2 ||
			c.Resources[0].Providers[1].Identity == nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v\n%s", err, info.Mode(), data)
		}
		var out []string
		for _, k := range c.Resources[0].Providers[0].Secretbox.Keys {
			out = append(out, k.Name+"="+k.Secret)
		}
		return strings.Join(out, " ")
	}
	put := func(text string) {
		t.Helper()
		_ = os.Remove(given) // a reboot deletes the file, too
		if text != "" {
			if err := os.WriteFile(given, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	const one, added, turned = "key1 QQ==\n", "key1 QQ==\nkey2 Qg==\n", "key2 Qg==\nkey1 QQ==\n"
	for i, step := range []struct {
		file, system string
		placed       bool
		want         string
	}{
		{"", one, false, ""},
		{one, one, true, "key1=QQ=="},
		{"", one, true, "key1=QQ=="},    // a reboot
		{"", added, false, "key1=QQ=="}, // apply boot and a reboot: the new key has not reached the node
		{added, added, true, "key1=QQ== key2=Qg=="},
		{turned, turned, true, "key2=Qg== key1=QQ=="},
		{"", turned, true, "key2=Qg== key1=QQ=="},
		{"", added, true, "key2=Qg== key1=QQ=="}, // an older generation: other servers may already encrypt with the new key
		{one, one, true, "key1=QQ== key2=Qg=="},
		{"Wg==\n", "", true, "key1=QQ== key2=Qg=="}, // a key that the hive does not generate: the keys stay
	} {
		put(step.file)
		if got := place(step.system); got != step.placed {
			t.Errorf("%d: placed: %v, want %v", i, got, step.placed)
		}
		if step.want != "" && keys() != step.want {
			t.Errorf("%d: %s, want %s", i, keys(), step.want)
		}
	}
}
