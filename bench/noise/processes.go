package noise

import (
	"bytes"
	"cmp"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/nixbench/nixbench/deploy/event"
)

const (
	kernelThread = 0x00200000 // the flag of kernel threads in /proc/PID/stat, which are not foreign: they also work for the benchmark
	maxDepth     = 64         // the maximum number of ancestors of a process that are examined
)

// Program is a program outside of the benchmark that used processors.
type Program struct {
	Name    string  `json:"name"`
	PID     int     `json:"pid"`     // the process of the program that used the most processor time
	Seconds float64 `json:"seconds"` // processor time of the visible processes of the program
}

// processes compares the processor time of the benchmark with that of the whole computer. All times are in ticks. What neither the
// benchmark nor the kernel has used is foreign, also if its processes ran only between two samples or are not visible.
//
// When a process of the benchmark ends, its parent, which belongs to the benchmark, too, has its time in the counter for waited children.
// So the sum of both counters of all processes of the benchmark contains the time of ended processes.
type processes struct {
	byID                map[int]*process
	ended               []*process // that have ended since the first sample
	round               int
	busy, own, kernel   float64 // at the last sample: time of all processors outside of interrupts, of the benchmark, and of kernel threads
	usedOwn, usedKernel float64 // since the first sample
	began               float64 // busy at the first sample
}

type process struct {
	id, parent  int
	start       uint64
	name        string
	kernel, own bool
	round       int     // the last round in which the process was seen
	used, total float64 // processor time of the process, and with the children for which it has waited
	began       float64 // used at the first sample; 0 for later processes
}

// foreign returns the processor time since the first sample that neither the benchmark nor the kernel has used.
func (ps *processes) foreign() float64 { return ps.busy - ps.began - ps.usedOwn - ps.usedKernel }

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
		ps.byID, ps.ended, ps.began = map[int]*process{}, nil, busy
	}
	ps.round++
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil {
			ps.observe(id, s.read("proc/"+name+"/stat"))
		}
	}
	own, kernel := 0.0, 0.0
	for _, id := range append(slices.Collect(maps.Values(s.source.Machines)), s.self) {
		if p := ps.byID[id]; p != nil {
			p.own = true
		}
	}
	for _, p := range ps.byID {
		p.own = ps.belongs(p)
	}
	for id, p := range ps.byID {
		switch {
		case p.round != ps.round:
			ps.ended = append(ps.ended, p)
			delete(ps.byID, id)
		case p.own:
			own += p.total
		case p.kernel:
			kernel += p.used
		}
	}
	if ps.round > 1 { // a sum is smaller than before if a process has ended whose parent does not belong to the benchmark
		ps.usedOwn, ps.usedKernel = ps.usedOwn+max(own-ps.own, 0), ps.usedKernel+max(kernel-ps.kernel, 0)
	}
	ps.busy, ps.own, ps.kernel = busy, own, kernel
	return true
}

func (ps *processes) observe(id int, stat []byte) {
	first, last := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if first < 0 || last < first {
		return // the process has ended
	}
	var v [20]uint64 // parent: 1, flags: 6, times: 11 to 14, start: 19; see proc_pid_stat(5)
	i := 0
	for field := range bytes.FieldsSeq(stat[last+1:]) {
		if i == len(v) {
			break
		}
		v[i], _ = strconv.ParseUint(string(field), 10, 64) // 0 for the state, and for fields that can be negative
		i++
	}
	if i < len(v) {
		return
	}
	p, used := ps.byID[id], float64(v[11]+v[12])
	if p == nil || p.start != v[19] {
		p = &process{id: id, start: v[19], kernel: v[6]&kernelThread != 0}
		if ps.byID[id] = p; ps.round == 1 {
			p.began = used
		}
	}
	if name := stat[first+1 : last]; p.name != string(name) {
		p.name = event.Printable(string(name))
	}
	p.used, p.total, p.parent, p.round = used, used+float64(v[13]+v[14]), int(v[1]), ps.round
}

// belongs reports whether a process, or one of its ancestors, belongs to the benchmark. Such a process still belongs to the benchmark
// when its parent has ended.
func (ps *processes) belongs(p *process) bool {
	for range maxDepth {
		if p == nil || p.own {
			return p != nil
		}
		p = ps.byID[p.parent]
	}
	return false
}

// top returns at most n foreign programs, ordered by processor time, the largest first.
func (ps *processes) top(n int) []Program {
	programs, most := map[string]Program{}, map[string]float64{}
	for _, p := range slices.Concat(ps.ended, slices.Collect(maps.Values(ps.byID))) {
		used := (p.used - p.began) / ticks
		if p.own || p.kernel || used <= 0 {
			continue
		}
		of := programs[p.name]
		if of.Name = p.name; used > most[p.name] {
			of.PID, most[p.name] = p.id, used
		}
		of.Seconds += used
		programs[p.name] = of
	}
	out := slices.SortedFunc(maps.Values(programs), func(a, b Program) int { return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Name, b.Name)) })
	return out[:min(n, len(out))]
}
