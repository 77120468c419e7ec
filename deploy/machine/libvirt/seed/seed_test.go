package seed

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/machine/provider"
)

var identity = provider.Identity{
	HostKey:        []byte("-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----\n"),
	AuthorizedKeys: []string{"ssh-ed25519 AAAA one", " ssh-ed25519 BBBB two\n"},
	Node:           []byte(`{"name":"worker-1"}`),
}

func TestTmpfiles(t *testing.T) {
	const want = `f~ /etc/ssh/ssh_host_ed25519_key 0600 root root - LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUgS0VZLS0tLS0Kc2VjcmV0Ci0tLS0tRU5EIE9QRU5TU0ggUFJJVkFURSBLRVktLS0tLQo=
d /root/.ssh 0700 root root -
f~ /root/.ssh/authorized_keys 0600 root root - c3NoLWVkMjU1MTkgQUFBQSBvbmUKc3NoLWVkMjU1MTkgQkJCQiB0d28K
d /var/lib/nixbench 0755 root root -
f~ /var/lib/nixbench/node.json 0644 root root - eyJuYW1lIjoid29ya2VyLTEifQ==
`
	if got := string(Tmpfiles(identity)); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := Tmpfiles(provider.Identity{}); len(got) != 0 {
		t.Errorf("of nobody: %q", got)
	}
}

func TestContainer(t *testing.T) {
	var names []string
	for _, f := range Container("worker-1", identity) {
		names = append(names, f.Name)
	}
	want := "system.hostname tmpfiles.extra ssh.authorized_keys.root nixbench.ssh_host_ed25519_key nixbench.node.json"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("files %s", got)
	}
}

func TestCloudInit(t *testing.T) {
	image, err := CloudInit("worker-1", identity)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := CloudInit("worker-1", identity); !bytes.Equal(image, again) {
		t.Error("the same words give another disk")
	}
	files := readISO(t, image, "cidata")
	var meta map[string]string
	if err := json.Unmarshal(files["META-DATA.;1"], &meta); err != nil || meta["local-hostname"] != "worker-1" {
		t.Errorf("meta-data %q: %v", files["META-DATA.;1"], err)
	}
	text, ok := bytes.CutPrefix(files["USER-DATA.;1"], []byte("#cloud-config\n"))
	var user struct {
		Hostname string
		SSHKeys  map[string]string `json:"ssh_keys"`
		Users    []struct {
			Keys []string `json:"ssh_authorized_keys"`
		}
	}
	if err := json.Unmarshal(text, &user); err != nil || !ok {
		t.Fatalf("user-data %q: %v", text, err)
	}
	if user.Hostname != "worker-1" || user.SSHKeys["ed25519_private"] != string(identity.HostKey) || len(user.Users) != 1 || len(user.Users[0].Keys) != 2 {
		t.Errorf("user-data %s", text)
	}
}

// readISO reads the output of makeISO at the standard's offsets.
func readISO(t *testing.T, image []byte, label string) map[string][]byte {
	t.Helper()
	d := image[16*sector:]
	if string(d[:7]) != "\x01CD001\x01" || strings.TrimSpace(string(d[40:72])) != label {
		t.Fatalf("description %q", d[:72])
	}
	if n := binary.LittleEndian.Uint32(d[80:]); int(n)*sector != len(image) {
		t.Errorf("%d sectors, of %d bytes", n, len(image))
	}
	at := int(binary.LittleEndian.Uint32(d[158:])) * sector
	files := map[string][]byte{}
	for folder := image[at : at+sector]; folder[0] != 0; folder = folder[folder[0]:] {
		name := string(folder[33 : 33+folder[32]])
		from, size := binary.LittleEndian.Uint32(folder[2:])*sector, binary.LittleEndian.Uint32(folder[10:])
		if from != binary.BigEndian.Uint32(folder[6:])*sector {
			t.Errorf("%q is at two places", name)
		}
		if folder[25]&2 == 0 {
			files[name] = image[from : from+size]
		}
	}
	return files
}

// Mounts the seed with the Linux kernel, where this machine permits mounting.
func TestLinuxMountsTheSeed(t *testing.T) {
	image, err := CloudInit("worker-1", identity)
	if err != nil {
		t.Fatal(err)
	}
	file, at := filepath.Join(t.TempDir(), "seed.iso"), t.TempDir()
	if err := os.WriteFile(file, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "loop,ro", "-t", "iso9660", file, at).CombinedOutput(); err != nil {
		t.Skipf("mount: %s", out)
	}
	defer func() { _ = exec.Command("umount", at).Run() }()
	for _, name := range []string{"meta-data", "user-data"} {
		if text, err := os.ReadFile(filepath.Join(at, name)); err != nil || len(text) == 0 {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if out, err := exec.Command("blkid", "-o", "value", "-s", "LABEL", file).Output(); err == nil && strings.TrimSpace(string(out)) != "cidata" {
		t.Errorf("label %q", out)
	}
}
