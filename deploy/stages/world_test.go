package stages

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/fake"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/deploy/state/runs"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/nixeval/daemon/daemontest"
)

// world is a hypervisor in memory whose machines are SSH servers in this process, and
// a simulated Nix whose evaluation takes as long as the test sets.
type world struct {
	t                *testing.T
	h                *fake.Hypervisor
	extraHypervisors map[string]*fake.Hypervisor // by name; others are h
	unreachable      map[string]bool             // hypervisors that do not answer
	dir              state.Dir
	hive             *nixeval.Hive
	image            string

	mu              sync.Mutex
	machines        map[string]*simulatedNode // by node
	boot            map[string]time.Duration
	unresponsive    map[string]bool // machines that never answer
	starting        bool            // machines report once that their system is starting
	evaluate        time.Duration
	evaluationFails bool     // evaluations of systems fail
	facts           []string // what each evaluation of systems saw
	images          int      // evaluations of images
	events          []event.Event
	questions       []string
	decline         bool
	assignAddress   func(provider.Spec) netip.Addr // the DHCP server of a network that nixbench does not manage
	engines         rollout.Engines
	revision        int                                          // of the hive; another revision has other systems
	onEvent         func(event.Event)                            // is called with each event, when it is sent
	onNix           func(context.Context, nixeval.Command) error // is called before each Nix command, which fails with its error
	invalid         string                                       // part of the store paths that Nix reports as missing
	engineFiles     sync.Map                                     // the engines that systems name in their file, by store path
	noEngineFiles   atomic.Bool                                  // systems have no such file, as before nixbench wrote it
	chunk           int                                          // number of units per evaluation; 0: as planned
}

// worldAccessFile is the access file of the engine of a world.
const worldAccessFile = "admin.conf"

func newWorld(t *testing.T, roles map[string]int) *world {
	root := t.TempDir()
	w := &world{
		t: t, h: fake.New(), dir: state.Dir(filepath.Join(root, ".nixbench", "demo")), image: filepath.Join(root, "image.raw"),
		machines: map[string]*simulatedNode{}, boot: map[string]time.Duration{}, unresponsive: map[string]bool{},
	}
	if err := os.WriteFile(w.image, []byte("a disk"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.scale(roles)
	w.h.OnStart(w.machineStarted)
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, m := range w.machines {
			m.server.Close()
		}
	})
	return w
}

// scale replaces the hive by one with these roles.
func (w *world) scale(roles map[string]int) {
	w.hive = &nixeval.Hive{
		Meta:  nixeval.Meta{Name: "demo", AllowApplyAll: true},
		Roles: map[string]nixeval.Role{},
		Cluster: &nixeval.Cluster{
			Network:     nixeval.Network{Name: "net", Mode: "nat", CIDR: "10.0.0.0/24", Domain: "internal"},
			Hypervisors: map[string]nixeval.Hypervisor{"default": {URI: "fake:///"}},
		},
	}
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		w.hive.Roles[role] = nixeval.Role{Count: roles[role], VCPUs: 1, Memory: "1G", Disk: "10G", Image: &w.image, Firmware: "bios"}
		u := nixeval.Unit{Name: role}
		for i := 1; i <= roles[role]; i++ {
			n := nixeval.Node{Name: fmt.Sprintf("%s-%d", role, i), Unit: role, Role: role, Index: i, Tags: []string{}}
			u.Nodes = append(u.Nodes, n.Name)
			w.hive.Nodes = append(w.hive.Nodes, n)
		}
		w.hive.Units = append(w.hive.Units, u)
	}
}

// machineStarted is called when a machine starts. The disk, and so the installed system, persists.
func (w *world) machineStarted(c provider.Cluster, s provider.Spec) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.machines[s.Node]
	disk := 0 // a machine with a new disk boots for the first time
	for _, h := range w.hypervisors() {
		for _, step := range h.Log() {
			if step.Op == "ensure" && step.Name == "disk" && step.Node == s.Node {
				disk++
			}
		}
	}
	if m == nil || m.disk != disk {
		key, err := ssh.ParsePrivateKey(s.Identity.HostKey)
		if err != nil {
			w.t.Errorf("%s: host key: %v", s.Node, err)
			return
		}
		client, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s.Identity.AuthorizedKey))
		if err != nil {
			w.t.Errorf("%s: authorised key: %v", s.Node, err)
			return
		}
		if m != nil {
			close(m.off)
			m.server.Close()
		}
		m = &simulatedNode{engineFile: w.engineFile, starting: w.starting, current: "/nix/store/generic", generations: []string{"/nix/store/generic"}, generation: 1, disk: disk}
		m.server, err = sshtest.Start(sshtest.Options{ForbidForwarding: true, HostKey: key, AuthorizedKey: client, Handler: m.handle})
		if err != nil {
			w.t.Error(err)
			return
		}
		w.machines[s.Node] = m
	}
	if w.assignAddress != nil {
		s.Address = w.assignAddress(s)
	}
	if m.off != nil {
		close(m.off)
	}
	m.off = make(chan struct{})
	m.address, m.up = s.Address.String(), time.Now().Add(w.boot[s.Node])
	for _, h := range w.hypervisors() {
		h.Print("demo-"+s.Node, "Linux boots "+s.Node+"\n")
	}
}

// engineFile returns the engine that a system names in its file.
func (w *world) engineFile(path string) string {
	kind, _ := w.engineFiles.Load(path)
	if kind == nil || w.noEngineFiles.Load() {
		return ""
	}
	return kind.(string)
}

// dial connects to an address in the machines' network.
func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	w.mu.Lock()
	var to string
	var off <-chan struct{}
	for node, m := range w.machines {
		running := slices.ContainsFunc(w.hypervisors(), func(h *fake.Hypervisor) bool { return h.State("demo-"+node) == provider.Running })
		if m.address == host && running && time.Now().After(m.up) && !w.unresponsive[node] {
			to, off = m.server.Addr(), m.off
		}
	}
	w.mu.Unlock()
	if to == "" {
		return nil, errors.New("connection refused")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, to)
	if err != nil {
		return nil, err
	}
	return &machineConn{Conn: conn, off: off, closed: make(chan struct{})}, nil
}

// machineConn is a connection to a machine since its last start. After the machine was off, the
// connection hangs: nothing arrives, and no packet resets the connection.
type machineConn struct {
	net.Conn
	off    <-chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (c *machineConn) wasOff() bool {
	select {
	case <-c.off:
		return true
	default:
		return false
	}
}

func (c *machineConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.wasOff() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *machineConn) Write(p []byte) (int, error) {
	if c.wasOff() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *machineConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

var factsRE = regexp.MustCompile(`"file://([^?"]+/runtime\.json)\?`)

var unitRE = regexp.MustCompile(`\\"([a-z0-9-]+)\\"`)

// nix answers the commands of an evaluation and a build without running Nix.
func (w *world) nix(ctx context.Context, c nixeval.Command) ([]byte, error) {
	if w.onNix != nil {
		if err := w.onNix(ctx, c); err != nil {
			return nil, err
		}
	}
	if c.Argv[1] == "--check-validity" && w.invalid != "" {
		return []byte(strings.Join(slices.DeleteFunc(slices.Clone(c.Argv[3:]), func(p string) bool { return !strings.Contains(p, w.invalid) }), "\n")), nil
	}
	if c.Argv[1] != "eval" {
		return nil, nil
	}
	text := c.Argv[len(c.Argv)-1]
	if strings.Contains(text, "h: h.images ") {
		w.mu.Lock()
		w.images++
		w.mu.Unlock()
		return nil, errors.New("no image can be built here")
	}
	_, names, _ := strings.Cut(text, "h: h.instantiate ")
	names, _, _ = strings.Cut(names, ")")
	w.mu.Lock()
	seen := "none"
	if m := factsRE.FindStringSubmatch(text); m != nil {
		data, err := os.ReadFile(m[1])
		if err != nil {
			w.t.Error(err)
		}
		seen = string(data)
	}
	w.facts = append(w.facts, seen)
	wait, wrong := w.evaluate, w.evaluationFails
	w.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if wrong {
		return nil, errors.New("it does not evaluate")
	}
	out := map[string]nixeval.Closure{}
	for _, m := range unitRE.FindAllStringSubmatch(names, -1) {
		path := fmt.Sprintf("/nix/store/%032d-nixos-system-%s", w.revision, m[1])
		if u := w.hive.Unit(m[1]); u != nil && u.Deployment.Engine != nil {
			path = fmt.Sprintf("/nix/store/%032d-%s-nixos-system-%s", w.revision, u.Deployment.Engine.Kind, m[1])
			w.engineFiles.Store(path, u.Deployment.Engine.Kind)
		}
		out[m[1]] = nixeval.Closure{Drv: path + ".drv", Out: path, System: "x86_64-linux"}
	}
	return json.Marshal(out)
}

// downHypervisor is a hypervisor that does not answer.
type downHypervisor struct {
	*fake.Hypervisor
	name string
}

func (d downHypervisor) Survey(context.Context, provider.Cluster, provider.Network) (provider.Inventory, error) {
	return provider.Inventory{}, &provider.Error{Hypervisor: d.name, Op: "connect", Err: provider.ErrUnreachable, Fix: "see that it is on"}
}

func (w *world) open(name string, _ provider.Hypervisor) (provider.Provider, error) {
	if w.unreachable[name] {
		return downHypervisor{w.extraHypervisors[name], name}, nil
	}
	if h := w.extraHypervisors[name]; h != nil {
		return h, nil
	}
	return w.h, nil
}

func (w *world) hypervisors() []*fake.Hypervisor {
	return append([]*fake.Hypervisor{w.h}, slices.Collect(maps.Values(w.extraHypervisors))...)
}

// session runs f with a Deployer while it holds the lock of the state.
func (w *world) session(ctx context.Context, command string, f func(*Deployer) error) ([]state.NodeResult, error) {
	dir := w.dir // w.dir may change while f runs
	if err := dir.Create(); err != nil {
		return nil, err
	}
	lock, err := dir.Lock(ctx, state.Self(command))
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	store, err := lock.Store()
	if err != nil {
		return nil, err
	}
	record, err := runs.Record(lock, runs.Run{Hive: "hive.nix"})
	if err != nil {
		return nil, err
	}
	hive := w.hive
	w.mu.Lock()
	w.events, w.questions = nil, nil
	w.mu.Unlock()
	send := event.Sink(func(e event.Event) {
		record.RecordEvent(e)
		w.mu.Lock()
		w.events = append(w.events, e)
		w.mu.Unlock()
		if w.onEvent != nil {
			w.onEvent(e)
		}
	})
	eval := nixeval.New(nixeval.Options{Source: nixeval.Source{File: "/hive.nix", Dir: "/"}, ChunkSize: w.chunk, Workers: w.chunk * 4, Run: w.nix, Send: send})
	fleet := fleet.New(hive, fleet.Options{Options: remote.Options{DialContext: w.dial}, Resolve: resolveBriefly, MachineOf: store.MachineOf, ClientKey: dir.ClientKey()})
	defer fleet.Close()
	err = f(&Deployer{
		Changer: node.Changer{
			Fleet: fleet, Copier: &closure.Copier{Run: w.nix, Send: send}, Uploader: &secrets.Uploader{Send: send},
			Activator: &activate.Activator{Send: send}, Store: store, RunID: record.ID(), Send: send,
		},
		Eval: eval, Record: record, Engines: w.engines,
		Keep: func(map[string]nixeval.Closure) error { return nil },
		Machines: &machine.Manager{Hive: hive, Dir: dir, Open: w.open, Eval: eval, Send: send, AccessFiles: []string{worldAccessFile}, Ask: func(changes []changes.Change) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, c := range changes {
				w.questions = append(w.questions, c.String())
			}
			if w.decline {
				return failure.WithKind(failure.Declined, errors.New("declined"))
			}
			return nil
		}},
	})
	results := record.Results()
	return results, errors.Join(err, record.End(0, err))
}

func (w *world) apply(options ...func(*Options)) ([]state.NodeResult, error) {
	return w.applyIn(w.t.Context(), options...)
}

func (w *world) applyIn(ctx context.Context, options ...func(*Options)) ([]state.NodeResult, error) {
	o := Options{Options: plan.Options{Options: node.Options{Goal: node.Switch, Confirm: time.Minute}}, BootTimeout: 10 * time.Second}
	for _, f := range options {
		f(&o)
	}
	return w.session(ctx, "apply", func(d *Deployer) error { return d.Apply(ctx, w.hive, w.hive.Nodes, o) })
}

func (w *world) destroy(selectNodes func([]nixeval.Node) ([]nixeval.Node, error)) error {
	return w.destroyIn(w.t.Context(), selectNodes)
}

func (w *world) destroyIn(ctx context.Context, selectNodes func([]nixeval.Node) ([]nixeval.Node, error)) error {
	_, err := w.session(ctx, "destroy", func(d *Deployer) error {
		destroyPlan, err := d.Machines.PlanDestroy(ctx, d.Store.State(), selectNodes)
		if err != nil {
			return err
		}
		defer destroyPlan.Close()
		_, err = d.Destroy(ctx, destroyPlan, Options{})
		return err
	})
	return err
}

func (w *world) state() *state.State {
	w.t.Helper()
	s, err := w.dir.Load()
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// must fails the test on an error, and returns the results.
func (w *world) must(results []state.NodeResult, err error) []state.NodeResult {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	return results
}

// wantTexts fails the test unless got contains exactly these texts.
func wantTexts(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// outcomes formats the results of a run, as `w-1 switched`.
func outcomes(results []state.NodeResult) []string {
	var out []string
	for _, r := range results {
		out = append(out, r.Node+" "+string(r.Outcome))
	}
	slices.Sort(out)
	return out
}

// simulatedNode answers like the scripts of activate, closure and secrets on a real machine.
type simulatedNode struct {
	server  *sshtest.Server
	address string
	up      time.Time
	off     chan struct{} // is closed when the machine starts again, because it was off
	disk    int           // number of disks that the machine has had

	engineFile func(path string) string

	mu             sync.Mutex
	current        string   // the system that runs
	generations    []string // of its profile, the oldest first
	generation     int      // the one that the profile points to
	protected      string   // the system that garbage collections leave alone although no generation has it
	collected      string   // a system that was collected as garbage
	busy           bool     // another run is switching the node
	switchFails    bool     // a switch fails, and the node rolls back
	needsReboot    bool     // a switch only sets the boot default, as with exit status 100 of switch-to-configuration
	refusesConfirm bool     // the node does not accept the confirmation
	boot           int      // how often it was rebooted
	effects        []string // what was activated, as `switch /nix/store/…`, and which keys were restored
	run            []string
	starting       bool            // the node reports once that its system is starting
	failed         string          // its units
	hostile        sshtest.Handler // answers all commands, from the command hostileTo of the script on
	hostileTo      string
	onCopy         func(context.Context) int // is called for each copy to the node, and returns its exit status
}

func (n *simulatedNode) handle(ctx context.Context, e *sshtest.Exec) int {
	argv := e.Argv
	n.mu.Lock()
	hostile := n.hostile
	if n.hostileTo != "" && len(argv) > 5 && argv[5] == n.hostileTo {
		n.hostileTo = ""
	} else if n.hostileTo != "" {
		hostile = nil
	}
	n.mu.Unlock()
	if hostile != nil {
		return hostile(ctx, e)
	}
	switch {
	case slices.Equal(argv, []string{"systemctl", "is-system-running"}):
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.starting {
			n.starting = false
			fmt.Fprintln(e.Stdout, "starting")
			return 1
		}
		fmt.Fprintln(e.Stdout, "running")
		return 0
	case argv[0] == "bash" && len(argv) > 5 && argv[3] == "nixbench": // argv[4] is the length of the script
		_, _ = io.Copy(io.Discard, e.Stdin)
		return n.activate(e, argv[5:])
	case argv[0] == "sh" && len(argv) > 5 && argv[3] == "upload-keys" && argv[5] == "restore":
		_, _ = io.Copy(io.Discard, e.Stdin)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.effects = append(n.effects, "keys put back")
		return 0
	case argv[0] == "sh" && len(argv) > 4 && argv[3] == "upload-keys":
		return answerWithoutKeys(e, argv[4])
	case argv[0] == "ln" && strings.HasPrefix(argv[3], "/run/nixbench/gcroots/"):
		n.mu.Lock()
		defer n.mu.Unlock()
		n.protected = argv[2]
		return 0
	case argv[0] == "nix-daemon":
		if n.onCopy != nil {
			if status := n.onCopy(ctx); status != 0 {
				return status
			}
		}
		(&daemontest.Store{AllValid: true}).ServeStdio(e.Stdin, e.Stdout)
		return 0
	}
	fmt.Fprintf(e.Stderr, "no simulated node knows %q\n", argv)
	return 127
}

// fingerprint returns what the client says of the node's systems and last run before it starts a run.
func (n *simulatedNode) fingerprint() string {
	last := map[string]string{}
	for _, line := range n.run {
		name, value, _ := strings.Cut(line, "=")
		last[name] = value
	}
	return strings.Join([]string{n.current, n.generations[n.generation-1], strconv.Itoa(n.generation), last["run"], last["phase"]}, "|")
}

func (n *simulatedNode) activate(e *sshtest.Exec, argv []string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	end := func(lines ...string) {
		n.run = slices.DeleteFunc(n.run, func(l string) bool { return strings.HasPrefix(l, "phase=") || l == "alive=yes" })
		n.run = append(append(n.run, "phase=done"), lines...)
	}
	wanted := ""
	switch argv[0] {
	case "inspect":
		if argv[1] != n.collected {
			wanted = argv[1]
		}
	case "start":
		run, goal, path, armed := argv[1], argv[2], argv[3], argv[5]
		if n.busy {
			return 75
		}
		if observed := argv[9]; observed != "" && (observed != n.fingerprint() || path == n.collected) {
			return 76
		}
		if path != n.protected && path != n.current && !slices.Contains(n.generations, path) {
			fmt.Fprintf(e.Stderr, "%s was collected as garbage\n", path)
			return 1
		}
		n.effects = append(n.effects, goal+" "+path)
		n.run = []string{"run=" + run, "goal=" + goal, "path=" + path, "from=" + n.current, "to=" + path, "armed=" + armed, "phase=waiting", "code=0", "boot=" + strconv.Itoa(n.boot+1)}
		if n.switchFails {
			end("outcome=rolled-back", "reason=switch", "code=4")
			break
		}
		if earlier, err := strconv.Atoi(argv[7]); err == nil && goal != "test" {
			n.generation = earlier
		} else if goal != "test" && n.generations[n.generation-1] != path {
			n.generations = append(n.generations, path)
			n.generation = len(n.generations)
		}
		if goal == "boot" {
			end("outcome=boot")
			break
		}
		if n.needsReboot {
			end("outcome=boot", "reason=reboot")
			break
		}
		n.current = path
		if armed == "0" {
			end("outcome=committed")
		}
	case "confirm":
		if n.refusesConfirm {
			return 1
		}
		fmt.Fprintln(e.Stdout, "accepted=yes")
		n.run = append(slices.DeleteFunc(n.run, func(l string) bool { return l == "phase=waiting" }), "phase=confirmed")
	case "confirm-again":
		if slices.Contains(n.run, "goal=test") {
			end("outcome=activated")
			break
		}
		end("outcome=committed")
	case "abort":
		for _, line := range n.run {
			if from, ok := strings.CutPrefix(line, "from="); ok {
				n.generation = slices.Index(n.generations, from) + 1
				n.current = from
			}
		}
		end("outcome=rolled-back", "reason=aborted")
	case "dry":
		return 0
	case "follow":
		if slices.Contains(n.run, "armed=0") && slices.Contains(n.run, "alive=yes") {
			end("outcome=committed")
		}
	case "forget": // drops the record of a run that was killed before it confirmed
		end("outcome=failed", "reason=rebooted")
		return 0
	case "reboot":
		n.boot++
		n.current = n.generations[n.generation-1]
		n.effects = append(n.effects, "reboot "+n.current)
	default:
		return 127
	}
	w := bufio.NewWriter(e.Stdout)
	defer w.Flush()
	fmt.Fprintf(w, "nixos=yes\ncurrent=%[1]s\nbooted=%[1]s\nprofile=%[2]s\nlink=system-%[3]d-link\n", n.current, n.generations[n.generation-1], n.generation)
	fmt.Fprintf(w, "engine=%s\n", n.engineFile(n.current))
	for i, path := range n.generations {
		fmt.Fprintf(w, "generation=/nix/var/nix/profiles/system-%d-link 1700000000 %s 25.05\n", i+1, path)
	}
	fmt.Fprintf(w, "failed=%s\nsystem=running\nboot-id=%d\nuptime=1000\n", n.failed, n.boot+1)
	for _, which := range []string{"booted", "profile"} {
		fmt.Fprintf(w, "kernel-%s=/k /i /m quiet\n", which)
	}
	fmt.Fprintf(w, "deployed=%s\n", n.current)
	if wanted != "" {
		fmt.Fprintf(w, "wanted=%s\n", wanted)
	}
	for _, line := range n.run {
		fmt.Fprintf(w, "run-%s\n", line)
	}
	fmt.Fprintln(w, "end=yes")
	return 0
}

// answerWithoutKeys answers the exchange about keys like a node without keys.
func answerWithoutKeys(e *sshtest.Exec, length string) int {
	script, _ := strconv.Atoi(length)
	in := bufio.NewReader(e.Stdin)
	_, _ = io.CopyN(io.Discard, in, int64(script))
	fmt.Fprintln(e.Stdout, "nixbench-keys 1")
	if counts, _ := in.ReadString('\n'); counts != "4 0\n" { // only the line "end"
		return 1
	}
	fmt.Fprintln(e.Stdout, "next")
	for range 2 {
		if _, err := in.ReadString('\n'); err != nil {
			return 1
		}
	}
	fmt.Fprintln(e.Stdout, "end")
	return 0
}

// TestMain runs many tests at the same time, also on few processors: most of their time, they wait for simulated nodes.
func TestMain(m *testing.M) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set("12")
	}
	os.Exit(m.Run())
}

// resolveBriefly limits the time of a login.
func resolveBriefly(ctx context.Context, t sshconfig.Target) (sshconfig.Config, error) {
	cfg, err := sshconfig.Resolve(ctx, t)
	cfg.ConnectTimeout = 5 * time.Second
	return cfg, err
}
