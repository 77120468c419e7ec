package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/node"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/deploy/secrets"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// job describes one apply, which the client process executes.
type job struct {
	Dir      string   // folder of the ssh configuration and the state
	Ports    []int    // SSH ports of the nodes
	Systems  []string // the desired system of each node
	Parallel int
	Profile  string // file to which a CPU profile is written, or empty
	Heap     string // file to which a heap profile is written while all connections are open, or empty
}

// sample is the measured result of a job.
type sample struct {
	Wall       time.Duration
	Done       map[string]time.Duration // by node: time from the start until the node's result
	Outcomes   map[state.Outcome]int    // number of nodes with each outcome
	Failed     map[string]string        // by failed node: the text of its result
	Peak       int64                    // maximum memory of the client process, in bytes
	Goroutines int                      // maximum number of goroutines
	CPU        time.Duration            // CPU time of the client process
	Children   time.Duration            // CPU time of the client's child processes
	Nix        int                      // number of Nix processes that would have been started
	Events     int
}

// lastResultExcept returns the time until the last result of a node. It ignores the node named but.
func (s sample) lastResultExcept(but string) time.Duration {
	var last time.Duration
	for name, at := range s.Done {
		if name != but {
			last = max(last, at)
		}
	}
	return last
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i+1) }

// assignSystems returns the store path of a system for each node. The nodes get the different systems in turn.
func assignSystems(nodes, systems int, version string) []string {
	out := make([]string, nodes)
	for i := range out {
		out[i] = fmt.Sprintf("/nix/store/%032d-nixos-system-unit-%d-%s", i%systems, i%systems, version)
	}
	return out
}

// writeSSHConfig writes the files for ssh into dir: ssh_config, the key, and known_hosts with the lines known.
func writeSSHConfig(dir string, known []string) error {
	key, hosts := filepath.Join(dir, "key"), filepath.Join(dir, "known_hosts")
	config := fmt.Sprintf("Host *\n User root\n IdentityFile %s\n IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile %s\n GlobalKnownHostsFile none\n", key, hosts)
	return errors.Join(
		os.WriteFile(key, sshtest.GeneratePrivateKey(), 0o600),
		os.WriteFile(hosts, []byte(strings.Join(known, "\n")+"\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "ssh_config"), []byte(config), 0o600),
	)
}

// applyInClient executes a job in a new client process and returns the result.
func applyInClient(ctx context.Context, j job) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd, to, from, err := startProcess(ctx, "client")
	if err != nil {
		return sample{}, err
	}
	var s sample
	err = to.Encode(j)
	if err == nil {
		err = from.Decode(&s)
	}
	return s, errors.Join(err, cmd.Wait())
}

// runClient is the main function of the client process. It reads a job from stdin, executes it, and writes
// the sample to stdout.
func runClient(ctx context.Context) error {
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return err
	}
	s, err := j.runApply(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

func (j job) runApply(ctx context.Context) (s sample, err error) {
	dir := state.Dir(filepath.Join(j.Dir, ".nixbench", "bench"))
	if err := dir.Create(); err != nil {
		return s, err
	}
	lock, err := dir.Lock(ctx, state.Self("apply"))
	if err != nil {
		return s, err
	}
	defer lock.Unlock()
	store, err := lock.Store()
	if err != nil {
		return s, err
	}
	record, err := lock.Record(state.RunInfo{Hive: "bench"})
	if err != nil {
		return s, err
	}
	if j.Profile != "" {
		f, err := os.Create(j.Profile)
		if err != nil {
			return s, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return s, err
		}
		defer pprof.StopCPUProfile()
	}
	begin := time.Now()
	s.Done, s.Outcomes, s.Failed = map[string]time.Duration{}, map[state.Outcome]int{}, map[string]string{}
	var mu sync.Mutex
	send := event.Sink(func(e event.Event) {
		record.Event(e)
		mu.Lock()
		defer mu.Unlock()
		s.Events++
		if e.Kind == event.NodeResult {
			s.Done[e.Node] = e.Time.Sub(begin)
			if e.Failed {
				s.Failed[e.Node] = e.Text
			}
		}
	})
	hive := j.makeHive()
	nix := &fakeNix{j: j}
	eval := nixeval.New(nixeval.Options{Source: nixeval.Source{File: filepath.Join(j.Dir, "hive.nix"), Dir: j.Dir}, Run: nix.run, Send: send})
	fleet := fleet.New(hive, fleet.Options{})
	d := &deploy.Deployer{
		Eval: eval, Fleet: fleet, Copier: &closure.Copier{Run: nix.run, Send: send, Substitute: true},
		Uploader: &secrets.Uploader{Send: send}, Activator: &activate.Activator{Send: send},
		Store: store, Record: record, Send: send,
		Keep: func(built map[string]nixeval.Closure) error {
			links := map[string]string{}
			for unit, c := range built {
				links[dir.Root(unit)] = c.Out
			}
			return eval.Keep(ctx, links)
		},
	}
	stop := watchGoroutines(&s)
	applyErr := d.Apply(ctx, hive, hive.Nodes, deploy.Options{Options: node.Options{Goal: node.Switch, Confirm: time.Minute}, Parallel: j.Parallel})
	s.Wall = time.Since(begin)
	if s.Peak, err = peakMemory(); err != nil {
		return s, err
	}
	if j.Heap != "" {
		if err := writeHeap(j.Heap); err != nil {
			return s, err
		}
	}
	fleet.Close()
	if applyErr != nil && len(s.Failed) == 0 {
		return s, applyErr
	}
	err = record.End(0, nil)
	stop()
	if err != nil {
		return s, err
	}
	s.Nix, s.CPU, s.Children = int(nix.count.Load()), cpuTime(syscall.RUSAGE_SELF), cpuTime(syscall.RUSAGE_CHILDREN)
	run, err := dir.OpenRun(record.ID())
	if err != nil {
		return s, err
	}
	for _, n := range run.Nodes {
		s.Outcomes[n.Outcome]++
	}
	return s, nil
}

// makeHive returns a hive in which each node has its own unit, so that the number of units is as large as
// possible.
func (j job) makeHive() *nixeval.Hive {
	h := &nixeval.Hive{Meta: nixeval.Meta{Name: "bench", AllowApplyAll: true}}
	host := "127.0.0.1"
	for i, port := range j.Ports {
		name := nodeName(i)
		h.Nodes = append(h.Nodes, nixeval.Node{Name: name, Unit: name})
		h.Units = append(h.Units, nixeval.Unit{Name: name, Nodes: []string{name}, Deployment: nixeval.Deployment{
			TargetHosts: nixeval.TargetHosts{host}, TargetPort: &port, SSHOptions: []string{"-F", filepath.Join(j.Dir, "ssh_config")},
		}})
	}
	return h
}

// fakeNix replaces the Nix commands. Every evaluation and build succeeds immediately.
type fakeNix struct {
	j     job
	count atomic.Int64
}

var nodeRE = regexp.MustCompile(`\\"node-(\d+)\\"`)

func (n *fakeNix) run(_ context.Context, c nixeval.Command) ([]byte, error) {
	n.count.Add(1)
	if c.Argv[1] != "eval" {
		return nil, nil
	}
	_, names, _ := strings.Cut(c.Argv[len(c.Argv)-1], "h: h.instantiate ")
	out := map[string]nixeval.Closure{}
	for _, m := range nodeRE.FindAllStringSubmatch(names[:min(1000, len(names))], -1) {
		i, _ := strconv.Atoi(m[1])
		path := n.j.Systems[i-1]
		out[nodeName(i-1)] = nixeval.Closure{Drv: path + ".drv", Out: path, System: "x86_64-linux"}
	}
	return json.Marshal(out)
}

// watchGoroutines records the maximum number of goroutines until stop is called.
func watchGoroutines(s *sample) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			s.Goroutines = max(s.Goroutines, runtime.NumGoroutine())
		}
	}()
	return func() { close(end); <-ended }
}

func writeHeap(file string) error {
	runtime.GC() // the profile contains the heap after the last garbage collection
	var b bytes.Buffer
	if err := pprof.Lookup("heap").WriteTo(&b, 0); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

func cpuTime(who int) time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(who, &u) // fails only for an invalid who
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMemory returns the maximum memory of this process in bytes.
func peakMemory() (int64, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), "VmHWM:")
	// With " -" there is always a first word. If the file has no VmHWM, that word is -, and ParseInt returns an error.
	kilobytes, err := strconv.ParseInt(strings.Fields(rest + " -")[0], 10, 64)
	return kilobytes << 10, err
}
