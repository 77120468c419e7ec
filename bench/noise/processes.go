package noise

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
)

// kernelThread is the flag of kernel threads in /proc/PID/stat. A kernel thread does not count as foreign: it also works for the benchmark.
const kernelThread = 0x00200000

// maxDepth is the maximum number of ancestors of a process that are examined.
const maxDepth = 64

// Program is a program outside of the benchmark that used processors.
type Program struct {
	Name    string  `json:"name"`    // or `children of NAME`: children whose time no sample has seen completely
	PID     int     `json:"pid"`     // the process of the program that used the most processor time
	Seconds float64 `json:"seconds"` // processor time of all processes of the program
	most    float64 // ticks of the process PID
}

// processes adds up the processor time that all visible processes used. All times are in ticks.
//
// The counters of a process disappear when the process ends. When its parent has waited for it, the kernel adds its time to the parent's
// counter for waited children. So update also adds the increase of this counter, minus the time that was counted while the child was
// running, and at most the processor time that no visible process has used.
type processes struct {
	byID     map[int]*process
	round    int
	busy     float64 // time of all processors outside of interrupts
	foreign  float64
	unseen   float64
	programs map[string]*Program
}

type process struct {
	id, parent   int
	start        uint64
	name         string
	kernel, own  bool
	round        int     // the last round in which the process was seen
	used, waited float64 // processor time of the process, and of the children for which it has waited
	addUsed      float64 // increase of used since the previous round
	addWaited    float64
	ended        float64 // the last seen times of the children that have ended since the previous round
	endedBefore  float64 // the same for children that ended one round earlier, and for which the process has not waited yet
	endedOwn     bool    // a child that has ended since the previous round belongs to the benchmark
	total        float64 // all foreign time of the process
}

// update reads all processes. busy is the time of all processors outside of interrupts. It returns false if the list of
// processes cannot be read.
func (ps *processes) update(s *Sampler, busy float64) bool {
	folder, err := os.Open(s.path("proc"))
	if err != nil {
		return false
	}
	names, err := folder.Readdirnames(-1)
	folder.Close()
	if err != nil {
		return false
	}
	if ps.byID == nil {
		ps.byID, ps.programs = map[int]*process{}, map[string]*Program{}
	}
	ps.round++
	ended := map[int]*process{}
	proc := s.path("proc") + "/"
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil {
			if old := ps.observe(id, s.readUntil(proc+name+"/stat", true)); old != nil {
				ended[id] = old
			}
		}
	}
	for id, p := range ps.byID {
		if p.round != ps.round {
			ended[id] = p
			delete(ps.byID, id)
		}
	}
	for _, p := range ps.byID {
		p.own = p.own || ps.belongs(s, p)
	}
	for _, p := range ended {
		if r := ps.reaper(p, ended); r != nil {
			r.ended += p.used + p.waited
			r.endedOwn = r.endedOwn || p.own
		}
	}
	if ps.round > 1 {
		ps.account(busy - ps.busy)
	}
	ps.busy = busy
	for _, p := range ps.byID {
		p.addUsed, p.addWaited, p.ended, p.endedOwn = 0, 0, 0, false
	}
	return true
}

// observe records the process with this id from its stat file. If another process had the id before, it returns that process.
func (ps *processes) observe(id int, stat []byte) (old *process) {
	first, last := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if first < 0 || last < first {
		return nil // the process has ended
	}
	var v [20]uint64 // parent: 1, flags: 6, times: 11 to 14, start: 19; see proc_pid_stat(5)
	i := 0
	for field := range bytes.FieldsSeq(stat[last+1:]) {
		if i == len(v) {
			break
		}
		v[i] = parseUint(field)
		i++
	}
	if i < len(v) {
		return nil
	}
	p := ps.byID[id]
	if p == nil || p.start != v[19] {
		old, p = p, &process{id: id, start: v[19], kernel: v[6]&kernelThread != 0}
		ps.byID[id] = p
	}
	if name := stat[first+1 : last]; p.name != string(name) {
		p.name = printable(name)
	}
	used, waited := float64(v[11]+v[12]), float64(v[13]+v[14])
	p.addUsed, p.addWaited = max(used-p.used, 0), max(waited-p.waited, 0)
	p.used, p.waited, p.parent, p.round = used, waited, int(v[1]), ps.round
	return old
}

// parseUint returns 0 for a text that is no number: the state of a process, and fields that can be negative.
func parseUint(text []byte) (n uint64) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// printable returns the name of a program without control characters.
func printable(name []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(name), "?"))
}

// belongs reports whether a process, or one of its ancestors, belongs to the benchmark. Such a process still belongs to the benchmark
// when its parent has ended.
func (ps *processes) belongs(s *Sampler, p *process) bool {
	for range maxDepth {
		if p == nil || p.own || p.id == s.self || s.isMachine(p.id) {
			return p != nil
		}
		p = ps.byID[p.parent]
	}
	return false
}

func (s *Sampler) isMachine(pid int) bool {
	for _, id := range s.source.Machines {
		if id == pid {
			return true
		}
	}
	return false
}

// reaper returns the process that waits for the ended process p, and so gets the time of p. It is the nearest ancestor of p that
// still runs, or process 1.
func (ps *processes) reaper(p *process, ended map[int]*process) *process {
	for range maxDepth {
		if r := ps.byID[p.parent]; r != nil {
			return r
		}
		above := ended[p.parent]
		if above == nil {
			break
		}
		p = above
	}
	return ps.byID[1]
}

// account divides busy, the time that the processors were busy since the previous round, between the benchmark, the programs outside
// of the benchmark, and unseen processes.
func (ps *processes) account(busy float64) {
	free := busy
	var waiting []*process // foreign processes that have waited for children
	for _, p := range ps.byID {
		p.addWaited = p.takeWaited()
		free -= p.addUsed
		switch {
		case p.own || p.kernel:
			free -= p.addWaited
		default:
			ps.charge(p, p.name, p.addUsed)
			if p.addWaited > 0 && !p.endedOwn {
				waiting = append(waiting, p)
			}
		}
	}
	slices.SortFunc(waiting, func(a, b *process) int { return cmp.Compare(b.addWaited, a.addWaited) })
	for _, p := range waiting {
		add := min(p.addWaited, max(free, 0))
		free -= add
		ps.charge(p, "children of "+p.name, add)
	}
	ps.unseen += free
}

// takeWaited returns the part of the increase of waited that was not counted while the children were running. A child can end one
// round before its parent waits for the child, so the counted time is also subtracted in the next round. It is not subtracted later,
// because a parent may never wait.
func (p *process) takeWaited() float64 {
	rest := p.addWaited - p.ended - p.endedBefore
	p.endedBefore = min(max(-rest, 0), p.ended)
	return max(rest, 0)
}

// charge adds processor time of a foreign process to the program with this name.
func (ps *processes) charge(p *process, name string, time float64) {
	if time <= 0 {
		return
	}
	ps.foreign += time
	p.total += time
	g := ps.programs[name]
	if g == nil {
		g = &Program{Name: name}
		ps.programs[name] = g
	}
	g.Seconds += time / ticks
	if p.total > g.most {
		g.PID, g.most = p.id, p.total
	}
}

// top returns at most n foreign programs, ordered by processor time, the largest first.
func (ps *processes) top(n int) (out []Program) {
	for _, g := range ps.programs {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Program) int { return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Name, b.Name)) })
	return out[:min(n, len(out))]
}
