// Package noise observes the computer on which the machines of a benchmark run. It decides, by limits that are declared before a trial,
// whether something other than the benchmark used this computer during the trial.
//
// A value that the computer does not have, such as the processor frequency in a virtual machine, is left out, and not 0. On
// systems other than Linux, only the canary is measured.
package noise

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	ticks          = 100 // units per second of the processor times in /proc, which Linux fixes for programs
	maxFrequencies = 16  // maximum number of processors whose frequency is read, because each read can interrupt the processor
)

// Source is the computer that is observed, and the processes on it that belong to the benchmark. This process and its descendants also
// belong to the benchmark.
type Source struct {
	Root string // folder that contains proc, sys and dev; default: /
	// Machines maps the names of the benchmark's machines to their process ids. Descendants of these processes belong to the benchmark,
	// too.
	Machines map[string]int
}

// Sample contains the counters of the machine at one time. Times are in seconds.
type Sample struct {
	Time      time.Time         `json:"time"`
	Total     *float64          `json:"total,omitempty"`     // time of all processors since the boot, also idle
	Steal     *float64          `json:"steal,omitempty"`     // processor time that this computer's hypervisor gave to other machines, since the boot
	Foreign   *float64          `json:"foreign,omitempty"`   // processor time outside of the benchmark and the kernel, since the first sample
	Pressure  *float64          `json:"pressure,omitempty"`  // time during which a process waited for a processor, since the boot
	SwapPages *float64          `json:"swapPages,omitempty"` // pages swapped in or out since the boot
	Busy      *float64          `json:"busy,omitempty"`      // time of all processors in programs and in the kernel, since the boot
	Frequency *float64          `json:"frequency,omitempty"` // frequency of the fastest processor, as a share of its maximum
	Machines  map[string]string `json:"machines,omitempty"`  // states of the machines that do not run
}

// Sampler takes samples of a machine. Its zero value is not usable, see [NewSampler].
type Sampler struct {
	source    Source
	self      int
	processes processes
	kmsg      kernelLog
	frequency [][2]string // the files of the current and of the maximum frequency, below the root of the source
}

// NewSampler returns a sampler for the computer source. The caller must call Close after the last sample.
func NewSampler(source Source) *Sampler {
	if source.Root == "" {
		source.Root = "/"
	}
	s := &Sampler{source: source, self: os.Getpid()}
	s.kmsg = openKernelLog(s.path("dev/kmsg"))
	current, _ := filepath.Glob(s.path("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq")) // the pattern is correct
	for _, c := range current[:min(len(current), maxFrequencies)] {
		folder, _ := filepath.Rel(source.Root, filepath.Dir(c)) // both are below the same root
		s.frequency = append(s.frequency, [2]string{folder + "/scaling_cur_freq", folder + "/cpuinfo_max_freq"})
	}
	return s
}

func (s *Sampler) Close() { s.kmsg.close() }

func (s *Sampler) path(name string) string { return filepath.Join(s.source.Root, name) }

func (s *Sampler) Sample() Sample {
	out := Sample{Time: time.Now()}
	if busy, total, steal, ok := s.processorTime(); ok {
		out.Total, out.Steal, out.Busy = &total, steal, new(busy/ticks)
		if s.processes.update(s, busy) {
			out.Foreign = new(s.processes.foreign() / ticks)
		}
	}
	if line, ok := LineOf(s.read("proc/pressure/cpu"), "some "); ok {
		if _, text, ok := strings.Cut(line, "total="); ok {
			out.Pressure = number(text, 1e6)
		}
	}
	vmstat := s.read("proc/vmstat")
	in, _ := LineOf(vmstat, "pswpin ")
	pages, _ := LineOf(vmstat, "pswpout ")
	if a, b := number(in, 1), number(pages, 1); a != nil && b != nil {
		out.SwapPages = new(*a + *b)
	}
	for _, files := range s.frequency {
		current, most := number(string(s.read(files[0])), 1), number(string(s.read(files[1])), 1)
		if current != nil && most != nil && *most > 0 && (out.Frequency == nil || *out.Frequency < *current / *most) {
			out.Frequency = new(*current / *most)
		}
	}
	s.kmsg.read()
	out.Machines = s.machineStates()
	return out
}

// machineStates returns the states of the machines whose processes do not run. It does not see paused machines; hypervisors report these.
func (s *Sampler) machineStates() map[string]string {
	out := map[string]string{}
	for machine, pid := range s.source.Machines {
		text := string(s.read("proc/" + strconv.Itoa(pid) + "/stat"))
		state := strings.TrimSpace(text[strings.LastIndex(text, ")")+1:])
		switch {
		case state == "":
			if _, err := os.Stat(s.path("proc/" + strconv.Itoa(pid))); errors.Is(err, fs.ErrNotExist) { // after another error, the state is unknown
				out[machine] = ended
			}
		case state[0] == 'Z' || state[0] == 'X':
			out[machine] = ended
		case state[0] == 'T':
			out[machine] = stopped
		}
	}
	return out
}

// processorTime returns the times of all processors. busy is the time in programs and in the kernel without interrupts, in ticks. total is
// all time, and steal the time that the hypervisor gave to other machines, in seconds.
func (s *Sampler) processorTime() (busy, total float64, steal *float64, ok bool) {
	line, ok := LineOf(s.read("proc/stat"), "cpu ")
	fields := strings.Fields(line)
	if !ok || len(fields) < 4 {
		return 0, 0, nil, false
	}
	for i, f := range fields[:min(len(fields), 8)] { // the later fields are guest times, which user time already contains
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return 0, 0, nil, false
		}
		total += v / ticks
		switch i {
		case 0, 1, 2: // user, nice, system
			busy += v
		case 7:
			steal = new(v / ticks)
		}
	}
	return busy, total, steal, true
}

// read returns the content of a file of the source, or nil.
func (s *Sampler) read(name string) []byte {
	data, err := os.ReadFile(s.path(name))
	if err != nil {
		return nil
	}
	return data
}

// LineOf returns the rest of the first line that begins with the prefix.
func LineOf(text []byte, prefix string) (string, bool) {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(prefix)); ok {
			return strings.TrimSpace(string(rest)), true
		}
	}
	return "", false
}

// number parses text as a number, and returns the number multiplied by unit. It returns nil if text is not a number.
func number(text string, unit float64) *float64 {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return new(v / unit)
}
