package provision

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

func containers(t *testing.T, count int) *bench {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	image := lab.Image(t, "container")
	return newBench(t, fmt.Sprintf(`{
    count = %d; vcpus = 1; memory = "512M"; image = "%s"; init = "/usr/sbin/lab-init";
    modules = [ { environment.etc."version".text = "one"; } ];
  }`, count, image))
}

// kill runs nixbench and kills it after a while, if it still runs then.
func (b *bench) kill(after time.Duration, args ...string) (killed bool) {
	b.t.Helper()
	cmd := b.l.Command(b.t.Context(), b.bin, append([]string{"-f", filepath.Join(b.dir, "hive.nix")}, args...)...)
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	select {
	case <-over:
		return false
	case <-time.After(after):
		_ = cmd.Process.Kill()
		<-over
		return true
	}
}

// Whenever apply or destroy is killed, the next apply converges, and destroy leaves nothing.
func TestKilled(t *testing.T) {
	b := containers(t, 3)
	before := b.things("lxc")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	for round := range 10 {
		after := 100*time.Millisecond + time.Duration(dice.Int64N(int64(4*time.Second)))
		killed := b.kill(after, "apply")
		t.Logf("round %d: apply was killed after %v: %t", round, after, killed)
		if round%3 != 2 {
			_, stderr := b.run(0, "apply")
			if got := results(stderr); len(got) != 3 || slices.ContainsFunc(got, func(r string) bool { return strings.Contains(r, "failed") }) {
				t.Errorf("round %d: %q", round, got)
			}
			_, stderr = b.run(0, "apply")
			b.want("again", results(stderr), []string{"w-1 unchanged", "w-2 unchanged", "w-3 unchanged"})
		}
		after = 100*time.Millisecond + time.Duration(dice.Int64N(int64(2*time.Second)))
		killed = b.kill(after, "destroy", "--yes")
		t.Logf("round %d: destroy was killed after %v: %t", round, after, killed)
		b.run(0, "destroy", "--yes")
		b.want("left", b.things("lxc"), before)
		if t.Failed() {
			return
		}
	}
}

const lan = `<network xmlns:dnsmasq='http://libvirt.org/schemas/network/dnsmasq/1.0'>
  <name>lan</name><bridge name='virlan' stp='off' delay='0'/>
  <ip address='192.168.77.1' netmask='255.255.255.0'><dhcp><range start='192.168.77.100' end='192.168.77.200'/></dhcp></ip>
  <dnsmasq:options><dnsmasq:option value='no-ping'/></dnsmasq:options>
</network>`

// A network that is not ours: addresses are found out, the facts have them, and the
// network is still there afterwards.
func TestNetworkOfOthers(t *testing.T) {
	b := containers(t, 2)
	file := filepath.Join(b.l.PoolPath(), "lan.xml")
	if err := os.WriteFile(file, []byte(lan), 0o644); err != nil {
		t.Fatal(err)
	}
	b.l.Virsh(t, "-c", b.l.URI("lxc"), "net-define "+file+"; net-start lan")
	before := b.things("lxc")
	set := []string{"--set", "cluster.network.name=lan", "--set", "cluster.network.mode=existing"}
	_, stderr := b.run(0, append([]string{"apply"}, set...)...)
	b.want("apply", results(stderr), []string{"w-1 generation", "w-2 generation"})
	out, _ := b.run(0, append([]string{"facts"}, set...)...)
	if strings.Count(out, "192.168.77.") != 2 {
		t.Errorf("facts: %s", out)
	}
	t.Log(out)
	_, stderr = b.run(0, append([]string{"apply"}, set...)...)
	b.want("again", results(stderr), []string{"w-1 unchanged", "w-2 unchanged"})
	// The hive has changed its mind about the network: no machine is moved in silence.
	_, stderr = b.run(5, "apply")
	if !strings.Contains(stderr, "on network lan (existing") {
		t.Error(stderr)
	}
	b.run(0, append([]string{"destroy", "--yes"}, set...)...)
	b.want("left", b.things("lxc"), before)
}
