package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// Names of factors whose levels do not change the configuration of the cluster.
const (
	WorkloadFactor   = "workload"
	RepeatFactor     = "repeat"
	SubmissionFactor = "submission"
)

// Levels of SubmissionFactor: each job is a request, which is the default, or equal jobs are one request.
const (
	SingleSubmission = "single"
	ArraySubmission  = "array"
)

// LimitsFactor is the factor whose level Tuned lifts the limits of schedulers for short jobs. Its level Default changes nothing.
const (
	LimitsFactor = "limits"
	Default      = "default"
	Tuned        = "tuned"
)

// Orders and resets of a benchmark.
const (
	Cheap = "cheap"
	Fresh = "fresh"
)

// Sweep is one execution of a benchmark, with everything that is frozen before the first trial.
type Sweep struct {
	Version        int                 `json:"version"`
	ID             string              `json:"id"`
	Name           string              `json:"name"`
	Created        time.Time           `json:"created"`
	Hive           string              `json:"hive"`                  // the file or flake as the user wrote it on the command line
	Description    string              `json:"description,omitempty"` // meta.description of the hive
	Revision       string              `json:"revision,omitempty"`
	Source         string              `json:"source"` // the file of the hive, or the folder of the flake, in the sweep's copy of the source
	Flake          bool                `json:"flake,omitempty"`
	Git            bool                `json:"git,omitempty"`       // the flake has only the files that git tracks
	Untracked      []string            `json:"untracked,omitempty"` // files of the source that git does not track
	Cluster        string              `json:"cluster,omitempty"`   // the name of the cluster
	Attr           string              `json:"attr,omitempty"`      // the name of the flake output that the user has selected
	Sets           []string            `json:"sets,omitempty"`      // the arguments of --set on the command line, for all configurations
	SourceHash     string              `json:"sourceHash"`
	Nixbench       string              `json:"nixbench"`
	Host           Host                `json:"host"`
	Nixpkgs        Nixpkgs             `json:"nixpkgs"`
	RepeatOf       string              `json:"repeatOf,omitempty"` // the id of the sweep that this one repeats
	Benchmark      Benchmark           `json:"benchmark"`          // without the jobs of workloads
	Workloads      map[string]Workload `json:"workloads"`
	Configurations []Configuration     `json:"configurations"`
	Trials         []Trial             `json:"trials"`          // in the order of execution
	Looks          []int               `json:"looks,omitempty"` // the numbers of blocks after which the sweep was complete, and then extended
}

// Nixpkgs identifies the nixpkgs from which the systems of a sweep are made.
type Nixpkgs struct {
	Path     string `json:"path"`
	Revision string `json:"revision,omitempty"` // of a git repository
	NarHash  string `json:"narHash,omitempty"`  // otherwise
	Unpinned bool   `json:"unpinned,omitempty"` // it can be another one when the sweep is repeated
}

// Workload identifies the content of a workload, so that changes are detected.
type Workload struct {
	Hash  string `json:"hash"`
	Jobs  int    `json:"jobs"`
	Tasks int    `json:"tasks"`
	// Program is a hash of the program that plays the workload and of the program's arguments.
	Program string `json:"program,omitempty"`
}

// Configuration is a combination of the levels that determine machines and systems. Several trials can have the same configuration.
type Configuration struct {
	Levels  map[string]string `json:"levels"`
	Modules []Level           `json:"modules,omitempty"` // those levels of the configuration that are NixOS modules
	Systems map[string]System `json:"systems,omitempty"` // by node, the frozen system
	Hollow  int               `json:"hollow,omitempty"`  // number of hollow nodes: one machine stands for several hollow nodes
	// Closure contains all store paths of the systems. If the sweep repeats another sweep from its archive, the systems are built
	// with the addresses and keys of that sweep to compute Closure, so that other addresses and keys do not change the paths.
	Closure []string `json:"closure,omitempty"`
}

// System is the NixOS system of a node.
type System struct {
	Drv  string `json:"drv"`
	Path string `json:"path"`
}

// Trial is a planned trial.
type Trial struct {
	Number        int               `json:"number"` // from 1
	Block         int               `json:"block"`  // number of the block, from 1; 0: a trial of the warm-up, whose result is not used
	Group         int               `json:"group"`  // number of the trial's group; invalid trials are repeated at the end of their group
	Cell          map[string]string `json:"cell"`
	Configuration int               `json:"configuration"` // index in Sweep.Configurations
}

// Level returns the share of wrong answers that the tests of the sweep may give: each look at the results of a sweep that is extended
// spends a part.
func (s Sweep) Level() float64 {
	planned := append(slices.Clone(s.Looks), s.Benchmark.Repetitions)[0]
	return stats.Spend(s.Benchmark.Repetitions, max(s.Benchmark.MaxBlocks, planned), s.Looks)
}

// String returns the cell of the trial as text, see [FormatCell].
func (t Trial) String() string { return FormatCell(t.Cell) }

func (t Trial) Workload() string { return t.Cell[WorkloadFactor] }

// FormatCell returns a cell as text, such as `roles.worker.count=2 scheduler=slurm workload=null`.
func FormatCell(cell map[string]string) string { return stats.JoinLevels(cell, " ") }

// NameCell returns the name of one of these cells, or of a part of its levels: the levels of schedulers and workloads, and the other factors
// with their levels, such as "slurm null node.count=4". Factors that have the same level in all cells are left out, unless nothing is left.
func NameCell(cells []map[string]string, cell map[string]string) string {
	return cmp.Or(ShortName(cell, CommonLevels(cells)), FormatCell(cell))
}

// ShortName returns the name of a cell without the factors in same.
func ShortName(cell, same map[string]string) string {
	var first, others []string
	for _, f := range slices.Sorted(maps.Keys(cell)) {
		switch _, constant := same[f]; {
		case constant:
		case f == WorkloadFactor || f == "scheduler":
			first = append(first, cell[f])
		default:
			others = append(others, strings.TrimPrefix(f, "roles.")+"="+cell[f])
		}
	}
	return strings.Join(append(first, others...), " ")
}

func CommonLevels(cells []map[string]string) map[string]string {
	if len(cells) == 0 {
		return nil
	}
	same := maps.Clone(cells[0])
	for _, c := range cells {
		maps.DeleteFunc(same, func(f, level string) bool { return c[f] != level })
	}
	return same
}

// configurationOf returns those levels of a cell that determine machines and systems.
func configurationOf(cell map[string]string) map[string]string {
	return stats.Without(cell, WorkloadFactor, RepeatFactor, SubmissionFactor)
}

func newConfiguration(b Benchmark, levels map[string]string) Configuration {
	c := Configuration{Levels: levels}
	for _, f := range slices.Sorted(maps.Keys(levels)) {
		if of := b.Modules[f]; of != "" {
			c.Modules = append(c.Modules, Level{Benchmark: of, Factor: f, Level: levels[f]})
		}
	}
	return c
}

// HasArrays reports whether a trial of the configuration with these levels submits equal jobs as one request.
func (s Sweep) HasArrays(levels map[string]string) bool {
	return slices.ContainsFunc(s.Trials, func(t Trial) bool {
		return t.Cell[SubmissionFactor] == ArraySubmission && maps.Equal(s.Configurations[t.Configuration].Levels, levels)
	})
}

// SetArguments returns arguments of --set, such as `roles.worker.count=2`, for all levels except NixOS modules and schedulers' limits.
func (c Configuration) SetArguments() []string {
	factors := stats.Keep(slices.Sorted(maps.Keys(c.Levels)), func(f string) bool {
		return f != LimitsFactor && !slices.ContainsFunc(c.Modules, func(l Level) bool { return l.Factor == f })
	})
	return stats.Map(factors, func(f string) string { return f + "=" + c.Levels[f] })
}

// FactsFile returns the name of the file with the facts (addresses and hashes of keys) of the configuration.
func (c Configuration) FactsFile() string {
	return workload.HashOf([]byte(stats.JoinLevels(c.Levels, "\n")))[len("sha256:"):][:16] + ".json"
}

// Plan returns the configurations and the trials of a benchmark. Only the seed determines the order of the trials, so that a repetition
// of the sweep has the same order.
func Plan(b Benchmark) ([]Configuration, []Trial) {
	var configurations []Configuration
	cells := map[int][]map[string]string{} // by index of the configuration
	for _, cell := range b.Cells {
		levels := configurationOf(cell)
		i := slices.IndexFunc(configurations, func(c Configuration) bool { return maps.Equal(c.Levels, levels) })
		if i < 0 {
			i = len(configurations)
			configurations = append(configurations, newConfiguration(b, levels))
		}
		cells[i] = append(cells[i], cell)
	}
	var trials []Trial
	add := func(configuration, block, group int, random *rand.Rand) {
		for _, i := range random.Perm(len(cells[configuration])) {
			trials = append(trials, Trial{Number: len(trials) + 1, Block: block, Group: group, Cell: cells[configuration][i], Configuration: configuration})
		}
	}
	blocks := make([]int, b.Warmup, b.Warmup+b.Repetitions) // warm-up blocks are 0
	for i := range b.Repetitions {
		blocks = append(blocks, i+1)
	}
	if b.Order == Cheap {
		order := rand.New(rand.NewPCG(b.Seed, 0)).Perm(len(configurations))
		for group, c := range order {
			for i, block := range blocks {
				add(c, block, group, rand.New(rand.NewPCG(b.Seed, uint64(1+group*len(blocks)+i))))
			}
		}
		return configurations, trials
	}
	for group, block := range blocks {
		random := rand.New(rand.NewPCG(b.Seed, uint64(group)))
		for _, c := range random.Perm(len(configurations)) {
			add(c, block, group, random)
		}
	}
	return configurations, trials
}

// NewID returns the id of a sweep: the time now, and the name of the benchmark.
func NewID(name string, now time.Time) string {
	return now.UTC().Format("20060102T150405Z") + "-" + name
}

// ownFactors are the factors with a meaning of their own, with their levels if these are fixed.
var ownFactors = map[string][]string{
	WorkloadFactor: nil, RepeatFactor: nil, LimitsFactor: {Default, Tuned}, SubmissionFactor: {SingleSubmission, ArraySubmission},
}

// Check returns an error if the name or a factor of a benchmark is invalid, or if a factor has a level twice.
func Check(name string, b Benchmark) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("benchmarks.%s: a name has the characters A-Z, a-z, 0-9, - and _", name)
	}
	if b.MaxBlocks > 0 && b.MaxBlocks < b.Repetitions {
		return fmt.Errorf("benchmarks.%s: maxBlocks is %d, and there are %d blocks", name, b.MaxBlocks, b.Repetitions)
	}
	for _, f := range slices.Sorted(maps.Keys(b.Factors)) {
		seen := map[string]bool{}
		for _, level := range b.Factors[f] {
			if seen[level] {
				return fmt.Errorf("benchmarks.%s: the factor %s has the level %q twice; the factor repeat measures a cell several times", name, f, level)
			}
			seen[level] = true
		}
		allowed, isOwn := ownFactors[f]
		isWrong := func(level string) bool { return allowed != nil && !slices.Contains(allowed, level) }
		switch _, err := nixeval.ParseSet(f + "=" + b.Factors[f][0]); {
		case b.Modules[f] != "":
			if err == nil || isOwn || !nameForm.MatchString(f) {
				return fmt.Errorf("benchmarks.%s: the factor %s has modules as levels, and its name is that of a path, scheduler, workload, submission, limits or repeat, or has other characters than A-Z, a-z, 0-9, - and _; choose another name", name, f)
			}
			for _, level := range b.Factors[f] {
				if !nameForm.MatchString(level) {
					return fmt.Errorf("benchmarks.%s: the factor %s has the level %q; the name of a level with modules has the characters A-Z, a-z, 0-9, - and _", name, f, level)
				}
			}
		case slices.ContainsFunc(b.Factors[f], isWrong):
			return fmt.Errorf("benchmarks.%s: the factor %s has the levels %q; there are %s", name, f, b.Factors[f], strings.Join(allowed, " and "))
		case err != nil && !isOwn:
			return fmt.Errorf("benchmarks.%s: the factor %s: %v; a factor is a path that --set accepts, scheduler, workload, submission, limits or repeat, or has modules as levels%s", name, f, err,
				failure.Suggest(f, append(slices.Sorted(maps.Keys(ownFactors)), "scheduler")))
		}
	}
	return nil
}

// IsOf reports whether the sweep executes the benchmark b with these workloads and these arguments of --set.
func (s Sweep) IsOf(b Benchmark, workloads map[string]Workload, sets []string) bool {
	return maps.Equal(s.Workloads, workloads) && encode(withoutJobs(s.Benchmark)) == encode(withoutJobs(b)) && slices.Equal(s.Sets, sets)
}

// withoutJobs returns a copy of the benchmark without the jobs and programs of workloads, which are in files of the sweep. The name
// and the arguments of a program stay.
func withoutJobs(b Benchmark) Benchmark {
	b.Workloads = maps.Clone(b.Workloads)
	for name, w := range b.Workloads {
		w.Jobs, w.Trace, w.ProgramInputs = []json.RawMessage{}, nil, nil
		if len(w.Program) > 0 {
			w.Program = slices.Clone(w.Program)
			w.Program[0] = filepath.Base(w.Program[0])
		}
		b.Workloads[name] = w
	}
	return b
}
