package noise

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
)

// kernelThread is the flag of kernel threads in /proc/PID/stat. They are not foreign: they also work for the benchmark.
const kernelThread = 0x00200000

// maxDepth limits the number of ancestors of a process that are followed.
const maxDepth = 64

// Program is a program outside of the benchmark that used processors.
type Program struct {
	Name    string  `json:"name"`    // `children of NAME`: processes that ran between two samples, or ended after the last one
	PID     int     `json:"pid"`     // of its process that used the most
	Seconds float64 `json:"seconds"` // processor time of all its processes
	most    float64 // ticks of the process PID
}

// processes accounts the processor time of all visible processes. All times are in ticks.
//
// A process that ends takes its counters with it, but its parent then has them as those of its waited children. update therefore also
// adds the increase of that counter, without the part that was already seen when the child was running, and at most the time that no
// visible process accounts for.
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
	round        int     // in which it was seen last
	used, waited float64 // the processor time of the process, and that of its children for which it has waited
	addUsed      float64 // used since the previous round
	addWaited    float64
	ended        float64 // the times of those children that have ended since the last round, as they were last seen
	endedBefore  float64 // such times of children that ended a round earlier, and for which the process has not waited yet
	endedOwn     bool    // one of these children belongs to the benchmark
	total        float64 // of its foreign time
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

// observe parses a stat file. It returns the process that had the same id before, if there was one.
func (ps *processes) observe(id int, stat []byte) (old *process) {
	first, last := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if first < 0 || last < first {
		return nil // it has ended
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

// belongs reports whether a process is, or descends from, one that belongs to the benchmark. It remains so when its parent ends.
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

// reaper returns the process that has waited for a process that has ended, and so has its time: the nearest ancestor that
// still runs, or the first process.
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

// account adds the time that the processors were busy since the previous round to the benchmark and to the programs outside of
// it.
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

// takeWaited returns the time of children that was not seen while they were running, and that the process has got by waiting
// for them. A child can end before its parent waits for it, so its time is also subtracted in the next round, but not later: a
// parent need not wait.
func (p *process) takeWaited() float64 {
	rest := p.addWaited - p.ended - p.endedBefore
	p.endedBefore = min(max(-rest, 0), p.ended)
	return max(rest, 0)
}

// charge adds foreign time of a process to that of its program.
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

// top returns the foreign programs, that which used the most first.
func (ps *processes) top(n int) (out []Program) {
	for _, g := range ps.programs {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Program) int { return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Name, b.Name)) })
	return out[:min(n, len(out))]
}
