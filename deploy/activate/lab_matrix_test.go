package activate

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/lab"
)

// matrix is the function of a nixpkgs whose attribute KIND-EFFECT is a system that starts the effect in one way after
// switch-to-configuration has returned. Its attribute base is the system before.
const matrix = `
nixpkgs:
let
  lib = import (nixpkgs + "/lib");
  sh = "/bin/sh";
  oneshot = script: { serviceConfig = { Type = "oneshot"; ExecStart = "${sh} -c '${script}'"; }; };
  once = script: let unit = oneshot script; in unit // { serviceConfig = unit.serviceConfig // { RemainAfterExit = true; }; };
  daemon = script: { wantedBy = [ "multi-user.target" ]; serviceConfig.ExecStart = "${sh} -c '${script}'"; };
  base = { config, ... }: {
    networking.hostName = ""; networking.firewall.enable = false; system.stateVersion = "25.05";
    # The job of this unit is in the queue before the switch.
    systemd.services.old = oneshot "sleep 15";
    systemd.services.x-key = once "true";
    systemd.paths.x-key = { wantedBy = [ "multi-user.target" ]; pathConfig.PathExists = "/run/x-key"; };
  };
  effects = {
    firewall = once "PATH=/usr/sbin:$PATH iptables -w -I INPUT -p tcp --dport 22 -j DROP; touch /run/effect";
    sshd = once "systemctl stop ssh.service ssh.socket; touch /run/effect";
    interface = once "PATH=/usr/sbin:$PATH ip link set eth0 down; touch /run/effect";
    fails = oneshot "touch /run/effect; echo the disk is on fire; exit 1";
    loops = { startLimitIntervalSec = 0; serviceConfig = { Restart = "always"; RestartSec = "100ms"; ExecStart = "${sh} -c 'touch /run/effect; sleep 0.5; exit 1'"; }; };
  };
  kinds = {
    # Ordered after a job from before the switch, and wanted by no target.
    queue = effect: { systemd.services = { late = effect // { after = [ "old.service" ]; }; starter = (oneshot "systemctl start --no-block late.service") // { wantedBy = [ "multi-user.target" ]; }; }; };
    timer = effect: { systemd.services.late = effect; systemd.timers.late = { wantedBy = [ "timers.target" ]; timerConfig.OnActiveSec = "2s"; }; };
    path = effect: { systemd.services.late = effect; systemd.services.maker = daemon "sleep 2; touch /run/made; exec sleep 1000"; systemd.paths.late = { wantedBy = [ "multi-user.target" ]; pathConfig.PathExists = "/run/made"; }; };
    socket = effect: { systemd.services.late = effect // { serviceConfig = { StandardInput = "null"; } // effect.serviceConfig; }; systemd.sockets.late = { wantedBy = [ "sockets.target" ]; socketConfig.ListenFIFO = "/run/late.fifo"; };
      systemd.services.writer = daemon "sleep 2; echo x >/run/late.fifo; exec sleep 1000"; };
    noBlock = effect: { systemd.services.late = effect // { serviceConfig = { ExecStartPre = "/bin/sleep 2"; } // effect.serviceConfig; }; system.activationScripts.late = "systemctl daemon-reload; systemctl start --no-block late.service"; };
    run = effect: { systemd.services.late = effect; system.activationScripts.late = "systemctl daemon-reload; systemd-run --quiet --on-active=2 --timer-property=AccuracySec=100ms --unit=later systemctl start late.service"; };
    reload = effect: { systemd.services.late = effect; systemd.services.reloaded = daemon "exec sleep 1000" // { reload = "sleep 1; systemctl start --no-block late.service"; };
      systemd.services.reloader = daemon "sleep 2; systemctl reload --no-block reloaded.service; exec sleep 1000"; };
    background = effect: { systemd.services.late = effect; systemd.services.back = daemon "sleep 2; systemctl start late.service; exec sleep 1000"; };
    # As with nixbench's own key units, a unit that waits for a key is only wanted by the key's unit.
    key = effect: { systemd.services.late = effect // { after = [ "x-key.service" ]; wantedBy = [ "x-key.service" ]; }; };
  };
  system = modules: (import (nixpkgs + "/nixos/lib/eval-config.nix") { inherit modules; }).config.system.build.toplevel;
in { base = system [ base ]; }
// lib.listToAttrs (lib.concatMap (kind: map (effect: { name = "${kind}-${effect}"; value = system [ base (kinds.${kind} effects.${effect}) ]; }) (builtins.attrNames effects)) (builtins.attrNames kinds))
`

var (
	matrixKinds   = []string{"queue", "timer", "path", "socket", "noBlock", "run", "reload", "background", "key"}
	matrixEffects = []string{"firewall", "sshd", "interface", "fails", "loops"}
)

// importantCells are the cells of which each run of the end-to-end tests makes one round.
var importantCells = []string{"queue/firewall/idle", "queue/fails/idle", "queue/sshd/idle", "timer/firewall/idle", "timer/interface/idle", "timer/loops/idle", "path/fails/idle", "run/sshd/idle", "key/firewall/idle"}

// TestLabMatrix switches machines to systems that close SSH or fail late, in different ways. Never may such a switch
// succeed and leave the machine unreachable or its unit failed, and never may a machine be unreachable two minutes after its rollback.
//
// NIXBENCH_MATRIX=ROUNDS makes so many rounds of all cells, and NIXBENCH_MATRIX_CELLS of those that match a regular
// expression, such as ^timer/.*/idle$. NIXBENCH_MATRIX_MACHINES is the number of machines (10).
func TestLabMatrix(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") == "" {
		t.Skip("needs NIXBENCH_E2E=1")
	}
	rounds, machines, cells := chooseCells(t)
	names := `"base"`
	for _, cell := range cells {
		if name := strconv.Quote(systemOf(cell)); !strings.Contains(names, name) {
			names += " " + name
		}
	}
	paths := buildSystems(t, "nixpkgs: { inherit (("+matrix+") nixpkgs) "+names+"; }")
	l := lab.Start(t, machines)
	free := make(chan *bench, machines)
	for _, m := range l.Machines {
		free <- newBench(t, l, m.Name, "root", paths)
	}
	results := map[string]map[string]int{}
	var mu sync.Mutex
	for _, load := range []string{"idle", "busy"} {
		mine := slices.DeleteFunc(slices.Clone(cells), func(c string) bool { return !strings.HasSuffix(c, "/"+load) })
		if len(mine) == 0 {
			continue
		}
		if load == "busy" {
			keepBusy(t)
		}
		var group sync.WaitGroup
		for range rounds {
			for _, cell := range mine {
				b := <-free
				group.Go(func() {
					result := "test failed"
					defer func() {
						mu.Lock()
						defer mu.Unlock()
						if results[cell] == nil {
							results[cell] = map[string]int{}
						}
						results[cell][result]++
						free <- b
					}()
					result = b.runCell(t, cell)
				})
			}
		}
		group.Wait()
	}
	for _, cell := range slices.Sorted(maps.Keys(results)) {
		t.Logf("%-26s %v", cell, results[cell])
	}
}

// chooseCells returns the number of rounds and of machines, and the names of the cells.
func chooseCells(t *testing.T) (rounds, machines int, cells []string) {
	rounds, cells = 1, importantCells
	if text := os.Getenv("NIXBENCH_MATRIX"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		only := regexp.MustCompile(os.Getenv("NIXBENCH_MATRIX_CELLS"))
		cells = nil
		for _, kind := range matrixKinds {
			for _, effect := range matrixEffects {
				for _, load := range []string{"idle", "busy"} {
					if cell := kind + "/" + effect + "/" + load; only.MatchString(cell) {
						cells = append(cells, cell)
					}
				}
			}
		}
	}
	machines = 10
	if text := os.Getenv("NIXBENCH_MATRIX_MACHINES"); text != "" {
		machines, _ = strconv.Atoi(text)
	}
	return rounds, min(machines, rounds*len(cells)), cells
}

// systemOf returns the attribute of a cell's system.
func systemOf(cell string) string {
	part := strings.Split(cell, "/")
	return part[0] + "-" + part[1]
}

// keepBusy runs four busy loops until the test ends.
func keepBusy(t *testing.T) {
	for range 4 {
		loop := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		if err := loop.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { loop.Process.Kill(); loop.Wait() })
	}
}

// runCell switches the machine from base to the cell's system, and returns what happened.
func (b *bench) runCell(t *testing.T, cell string) string {
	b.host = labHost(t, b.l, b.name, "root") // the cell before may have cut the connections
	r := b.request("base", Switch)
	if err := b.try(r); err != nil {
		t.Errorf("%s on %s: before: %v", cell, b.name, err)
		return "test failed"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	prepare := "rm -f /run/effect /run/made /run/x-key; systemctl stop x-key.service; systemctl reset-failed"
	if strings.HasPrefix(cell, "queue/") {
		prepare += "; systemctl start --no-block old.service"
	}
	if out, err := b.l.SSH(ctx, b.name, prepare).CombinedOutput(); err != nil {
		t.Errorf("%s on %s: before: %v\n%s", cell, b.name, err, out)
		return "test failed"
	}
	boot := b.inspect().BootID
	r = b.request(systemOf(cell), Switch)
	r.Run += "-" + b.name + "-" + strings.Split(cell, "/")[0]
	r.SettleTime = 3 * time.Second
	begin := time.Now()
	err := b.try(r)
	took := time.Since(begin).Round(100 * time.Millisecond)
	if err == nil {
		time.Sleep(10 * time.Second)
		text, failed := b.look(5 * time.Second)
		if effect := strings.Split(cell, "/")[1]; failed == nil && effect != "fails" && effect != "loops" {
			t.Logf("%s on %s: the switch succeeded after %v, and has started again what the unit had stopped: %s", cell, b.name, took, text)
			return "reachable"
		}
		t.Errorf("%s on %s: the switch succeeded after %v; 10s later: %s %v", cell, b.name, took, text, failed)
		b.restore(t)
		return "ESCAPED"
	}
	// The node decides by itself when the client has lost it.
	text, failed := b.look(2 * time.Minute)
	if failed != nil {
		t.Errorf("%s on %s: %v (%v)\nunreachable two minutes later: %v", cell, b.name, err, took, failed)
		b.restore(t)
		return "UNREACHABLE"
	}
	n := b.inspect()
	if n.Current != b.paths["base"] || n.Profile != b.paths["base"] {
		t.Errorf("%s on %s: %v\nruns %s, boots %s", cell, b.name, err, n.Current, n.Profile)
		return "WRONG SYSTEM"
	}
	how := "rolled back"
	if n.BootID != boot {
		how = "rolled back and rebooted"
	}
	t.Logf("%s on %s: %s in %v: %v\n%s", cell, b.name, how, took, err, text)
	return how
}

func (b *bench) try(r Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	r.Confirm = 20 * time.Second // ten machines may share two processors
	if strings.HasSuffix(r.Run, "-key") {
		r.AfterSwitch = func(ctx context.Context) bool { return b.l.SSH(ctx, b.name, "touch /run/x-key").Run() == nil }
	}
	_, err := b.a.Activate(ctx, b.name, b.host, r)
	return err
}

// look waits until the machine accepts a login, and returns its failed units.
func (b *bench) look(limit time.Duration) (text string, err error) {
	for begin := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var out []byte
		out, err = b.l.SSH(ctx, b.name, "systemctl list-units --plain --no-legend --state=failed,auto-restart; echo /run/effec*").CombinedOutput()
		cancel()
		if err == nil || time.Since(begin) > limit {
			return fmt.Sprintf("%q", out), err
		}
	}
}

// restore makes an unreachable machine usable for the next cell.
func (b *bench) restore(t *testing.T) {
	b.l.PowerCut(t, b.name)
	b.l.PowerOn(t, b.name)
	b.host = labHost(t, b.l, b.name, "root")
}
