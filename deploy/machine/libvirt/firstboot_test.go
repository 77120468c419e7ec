package libvirt

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/e2e/lab"
)

// newKey returns a private key in OpenSSH's PEM format and its public key.
func newKey(t *testing.T) (private []byte, public string) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(p)))
}

// Tests that new containers answer with the host key, the name, the address and the node.json that they were
// given. e2e/provision tests virtual machines, which take longer.
func TestFirstBoot(t *testing.T) {
	t.Parallel()
	l := lab.Hypervisor(t)
	image := provider.Image{Hash: "1111111111111111", Format: provider.Raw, Disk: filepath.Join(lab.Image(t, "container"), "disk.raw")}
	h, err := Open("lab", provider.Hypervisor{URI: l.URIs["lxc"], Pool: "nixbench", PoolPath: l.PoolPath}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()

	client, clientPublic := newKey(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "id"), client, 0o600); err != nil {
		t.Fatal(err)
	}
	c := provider.Cluster{Name: "boot", ID: "00112233445566aa"}
	g := provider.HostSetup{
		Network: provider.Network{Name: "nbboot", Mode: provider.NAT, CIDR: netip.MustParsePrefix("192.168.240.0/24"), Domain: "internal"},
		Images:  []provider.Image{image},
	}
	var specs []provider.Spec
	known := ""
	for i := range 3 {
		private, public := newKey(t)
		s := provider.Spec{
			Node: fmt.Sprintf("worker-%d", i+1), Role: "worker", Index: i + 1, MAC: fmt.Sprintf("52:54:00:aa:01:%02x", i+1),
			Address: netip.MustParseAddr(fmt.Sprintf("192.168.240.%d", 20+i)), VCPUs: 1, Memory: 256 << 20, Disk: 5 << 30,
			Init: "/usr/sbin/lab-init", Image: image, NewDisks: true,
		}
		s.Identity = provider.Identity{
			HostKey: private, AuthorizedKey: clientPublic,
			Node: fmt.Appendf(nil, "{\"name\":%q}", s.Node),
		}
		known += s.Address.String() + " " + public + "\n"
		specs = append(specs, s)
		g.Reservations = append(g.Reservations, provider.Reservation{Node: s.Node, MAC: s.MAC, Address: s.Address})
	}
	if err := os.WriteFile(filepath.Join(dir, "known"), []byte(known), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(s provider.Spec, script string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		out, err := l.Command(ctx, "ssh", "-F", "/dev/null", "-i", filepath.Join(dir, "id"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
			"-o", "ConnectTimeout=2", "-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile="+filepath.Join(dir, "known"),
			"root@"+s.Address.String(), script).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}

	start := time.Now()
	if err := h.Prepare(t.Context(), c, g); err != nil {
		t.Fatal(err)
	}
	t.Logf("Prepare: %s", time.Since(start))
	start = time.Now()
	var all sync.WaitGroup
	for _, s := range specs {
		all.Go(func() {
			if err := h.Ensure(t.Context(), c, g.Network, s); err != nil {
				t.Error(err)
				return
			}
			t.Logf("%s: Ensure %s", s.Node, time.Since(start))
			var out string
			var err error
			for time.Since(start) < 90*time.Second {
				if out, err = run(s, "cat /var/lib/nixbench/node.json; echo; hostname; cat /proc/sys/kernel/random/boot_id"); err == nil {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			t.Logf("%s: SSH %s", s.Node, time.Since(start))
			if err != nil || !strings.HasPrefix(out, string(s.Identity.Node)+"\n"+s.Node+"\n") {
				text, consoleErr := h.ConsoleTail(t.Context(), c, s.Node, 3000)
				t.Errorf("%s says %q: %v; its console: %s %v", s.Node, out, err, text, consoleErr)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for _, s := range specs {
		got, err := h.Addresses(t.Context(), c, s.Node)
		if err != nil || len(got) != 1 || got[0] != s.Address {
			t.Errorf("%s has addresses %v, %v", s.Node, got, err)
		}
	}
	// The host keys are readable by root only.
	seeds, _ := filepath.Glob(filepath.Join(l.PoolPath, "*.seed"))
	if len(seeds) != len(specs) {
		t.Errorf("seeds %q", seeds)
	}
	for _, file := range seeds {
		if st, err := os.Stat(file); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", file, st, err)
		}
	}
	// Resolve the name with the network's DNS server.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if out, err := l.Command(ctx, "busybox", "nslookup", specs[1].Node+".internal", "192.168.240.1").CombinedOutput(); !strings.Contains(string(out), specs[1].Address.String()) {
		t.Errorf("%s is not known by name: %s, %v", specs[1].Node, out, err)
	}
	// A restart with another size keeps the disk and the machine's identity.
	if _, err := run(specs[0], "touch /var/lib/kept; sync"); err != nil {
		t.Error(err)
	}
	specs[0].Memory += 64 << 20
	start = time.Now()
	if err := h.Ensure(t.Context(), c, g.Network, specs[0]); err != nil {
		t.Fatal(err)
	}
	t.Logf("resized: %s", time.Since(start))
	for time.Since(start) < 90*time.Second {
		if _, err = run(specs[0], "test -e /var/lib/kept"); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("after the restart: %v", err)
	}
	t.Logf("and back: %s", time.Since(start))
	start = time.Now()
	for _, s := range specs {
		if err := h.Remove(t.Context(), c, s.Node); err != nil {
			t.Error(err)
		}
	}
	if err := h.Clean(t.Context(), c, true); err != nil {
		t.Error(err)
	}
	t.Logf("removed: %s", time.Since(start))
	if left, _ := os.ReadDir(l.PoolPath); len(left) > 0 {
		t.Errorf("left in the pool: %v", left)
	}
}
