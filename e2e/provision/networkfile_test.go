package provision

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// A node whose system has the file 10-nixbench.network of earlier modules gets the present one by a switch, and keeps
// its address. A hive's own file then has an effect.
func TestNetworkFileIsReplaced(t *testing.T) {
	t.Parallel()
	guest, err := filepath.Abs("../../modules/guest.nix")
	if err != nil {
		t.Fatal(err)
	}
	role := func(networks string) string {
		return fmt.Sprintf(`{
    count = 1; vcpus = 1; memory = "512M"; image = "%s"; init = "/usr/sbin/lab-init";
    modules = [ %s { boot.isContainer = true; systemd.network.networks = { %s }; } ];
  }`, lab.Image(t, "container"), guest, networks)
	}
	const dhcp = `matchConfig.Name = "en* eth*"; networkConfig.DHCP = "ipv4"; dhcpV4Config.ClientIdentifier = "mac";`
	b := newBareHypervisor(t, role(`"70-nixbench".enable = false; "10-nixbench" = { `+dhcp+` };`))
	// describe returns the name of the interface's file, its address and its MTU.
	describe := func() string {
		out, _ := b.run(0, "ssh", "w-1", "--",
			`networkctl status eth0 | sed -n 's,.*Network File: .*/,,p'; ip -4 -o address show dev eth0 | awk '{print $4}'; ip -o link show dev eth0 | grep -o 'mtu [0-9]*'`)
		return strings.Join(strings.Fields(out), " ")
	}
	_, stderr := b.run(0, "apply")
	b.want("apply", results(stderr), []string{"w-1 generation"})
	first, boots := describe(), b.bootIDs()
	if !strings.HasPrefix(first, "10-nixbench.network 192.168.222.") || !strings.HasSuffix(first, " mtu 1500") {
		t.Errorf("before: %s", first)
	}
	b.writeHive(role(""))
	_, stderr = b.run(0, "apply")
	b.want("the present file", results(stderr), []string{"w-1 generation"})
	if got, want := describe(), strings.Replace(first, "10-nixbench", "70-nixbench", 1); got != want {
		t.Errorf("the present file: %s, want %s", got, want)
	}
	b.writeHive(role(`"30-own" = { ` + dhcp + ` linkConfig.MTUBytes = "1400"; };`))
	_, stderr = b.run(0, "apply")
	b.want("the hive's own file", results(stderr), []string{"w-1 generation"})
	if got, want := describe(), strings.NewReplacer("10-nixbench", "30-own", "mtu 1500", "mtu 1400").Replace(first); got != want {
		t.Errorf("the hive's own file: %s, want %s", got, want)
	}
	if again := b.bootIDs(); again["w-1"] != boots["w-1"] {
		t.Errorf("boots: before %v, after %v", boots, again)
	}
	b.run(0, "destroy", "--yes")
}
