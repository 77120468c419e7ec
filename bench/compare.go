package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/event"
)

// Difference is something in which two sweeps differ, apart from their results.
type Difference struct {
	What string `json:"what"`
	A    string `json:"a"`
	B    string `json:"b"`
	// Follows reports that another difference of the list is the cause of this one.
	Follows bool `json:"follows,omitempty"`
}

// argumentsOfSet is the name of the difference between two sweeps whose arguments of --set differ.
const argumentsOfSet = "the arguments of --set"

// CountCauses returns the number of differences that do not follow from another difference.
func CountCauses(all []Difference) int {
	return len(stats.Keep(all, func(d Difference) bool { return !d.Follows }))
}

// Compare returns the differences between two sweeps, apart from their results. Different results have a single cause only if exactly one
// of these differences does not follow from another one. A cause that changes several configurations is one difference.
func Compare(a, b Sweep) []Difference {
	var out []Difference
	add := func(what, x, y string) {
		if x != y {
			out = append(out, Difference{What: what, A: x, B: y})
		}
	}
	add("the nixbench", a.Nixbench, b.Nixbench)
	add("the kernel", a.Host.Kernel, b.Host.Kernel)
	add("the processor", fmt.Sprintf("%d × %s", a.Host.CPUs, a.Host.CPU), fmt.Sprintf("%d × %s", b.Host.CPUs, b.Host.CPU))
	add("the memory", fmt.Sprintf("%d MiB", a.Host.Memory), fmt.Sprintf("%d MiB", b.Host.Memory))
	add("the version of libvirt", a.Host.Libvirt, b.Host.Libvirt)
	add("the version of QEMU", a.Host.QEMU, b.Host.QEMU)
	add("the governor of the processors", a.Host.Governor, b.Host.Governor)
	add("SMT", a.Host.SMT, b.Host.SMT)
	if a.Host.Nix != "" && b.Host.Nix != "" {
		add("the version of Nix", a.Host.Nix, b.Host.Nix)
	}
	x, y := a.Benchmark, b.Benchmark
	add("the order", fmt.Sprintf("%s, seed %d", x.Order, x.Seed), fmt.Sprintf("%s, seed %d", y.Order, y.Seed))
	add("the client", cmp.Or(x.Client, "none"), cmp.Or(y.Client, "none"))
	add("the seconds of the pause before a workload", encode(x.Pause), encode(y.Pause))
	add("the thresholds of noise", encode(x.Quiet), encode(y.Quiet))
	add("the reset", x.Reset, y.Reset)
	add("the number of warm-up blocks", encode(x.Warmup), encode(y.Warmup))
	for _, name := range slices.Sorted(maps.Keys(a.Workloads)) {
		if other, ok := b.Workloads[name]; ok {
			x, y := a.Benchmark.Workloads[name], b.Benchmark.Workloads[name]
			add("the workload "+name, a.Workloads[name].Hash, other.Hash)
			add("the program of the workload "+name, a.Workloads[name].Program, other.Program)
			add("the time limit of the workload "+name, workload.Seconds(x.TimeLimit).String(), workload.Seconds(y.TimeLimit).String())
			add("the players of the workload "+name, encode(x.Players), encode(y.Players))
		}
	}
	add(argumentsOfSet, strings.Join(a.Sets, " "), strings.Join(b.Sets, " "))
	// If the sources are equal and the arguments of --set differ, the systems differ because of --set: nothing else can have
	// changed them. The differences that were added above may have other causes.
	follows := !slices.Equal(a.Sets, b.Sets) && a.SourceHash != "" && a.SourceHash == b.SourceHash
	pairs := pairConfigurations(a, b)
	var hollow group
	for _, p := range pairs {
		hollow.add("the hollow nodes", p.name, fmt.Sprint(p.a.Hollow), fmt.Sprint(p.b.Hollow))
	}
	for _, d := range slices.Concat(hollow.out, compareFrozen(pairs)) {
		d.Follows = follows
		out = append(out, d)
	}
	return out
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// pair is a configuration that the two compared sweeps have in common.
type pair struct {
	name           string
	a, b           Configuration
	indexA, indexB int      // in the configurations of the sweeps
	changed        []string // the store paths that only one of the two has, see [CompareClosures]
	paths          int      // the number of all paths
}

// pairConfigurations returns the configurations that two sweeps have in common, in the order of the first sweep.
func pairConfigurations(a, b Sweep) []pair {
	var out []pair
	for i, c := range a.Configurations {
		k := slices.IndexFunc(b.Configurations, func(other Configuration) bool { return maps.Equal(other.Levels, c.Levels) })
		if k < 0 {
			continue
		}
		p := pair{name: cmp.Or(ShortName(c.Levels, CommonLevels(a.Benchmark.Cells)), "the only configuration"), a: c, b: b.Configurations[k], indexA: i, indexB: k}
		p.changed, p.paths = CompareClosures(p.a.Closure, p.b.Closure)
		out = append(out, p)
	}
	return out
}

// group joins differences with the same values in several configurations into one, whose name lists these configurations.
type group struct{ out []Difference }

func (g *group) add(what, configuration, x, y string) {
	if x == y {
		return
	}
	i := slices.IndexFunc(g.out, func(d Difference) bool { return strings.HasPrefix(d.What, what+" of ") && d.A == x && d.B == y })
	if i < 0 {
		g.out = append(g.out, Difference{What: what + " of " + configuration, A: x, B: y})
		return
	}
	g.out[i].What += "; " + configuration
}

// compareFrozen returns the differences between the frozen systems of the configurations of two sweeps. It joins configurations that the
// same cause has changed into one difference.
func compareFrozen(pairs []pair) []Difference {
	var causes [][]pair
	for _, p := range pairs {
		if len(p.changed) == 0 {
			continue
		}
		i := slices.IndexFunc(causes, func(all []pair) bool {
			return !slices.ContainsFunc(all, func(other pair) bool { return !haveSameCause(p, other) })
		})
		if i < 0 {
			causes = append(causes, []pair{p})
			continue
		}
		causes[i] = append(causes[i], p)
	}
	var out []Difference
	for _, all := range causes {
		var names, counts, packages []string
		for _, p := range all {
			names, counts = append(names, p.name), append(counts, fmt.Sprintf("%d of %d paths", len(p.changed), p.paths))
			packages = append(packages, p.changed...)
		}
		out = append(out, Difference{What: "the systems of " + strings.Join(names, "; "), A: "differ in " + strings.Join(counts, " and "), B: event.Abbreviate(packageNames(packages), ", ")})
	}
	return out
}

// haveSameCause reports whether the systems of two configurations have changed between the sweeps for the same reason. This is so if the
// configurations share a changed path, or all names of changed paths, and neither has kept a path that was replaced in the other one.
func haveSameCause(p, q pair) bool {
	if keepsReplaced(p.changed, q) || keepsReplaced(q.changed, p) {
		return false
	}
	common := slices.ContainsFunc(p.changed, func(c string) bool { return slices.Contains(q.changed, c) })
	return common || slices.Equal(packageNames(p.changed), packageNames(q.changed))
}

// keepsReplaced reports whether one of the changed paths is in the systems of both sweeps of the pair p, so that the path was not
// replaced in p.
func keepsReplaced(changed []string, p pair) bool {
	return slices.ContainsFunc(changed, func(c string) bool {
		return slices.Contains(p.a.Closure, c[1:]) && slices.Contains(p.b.Closure, c[1:])
	})
}

// CompareResults returns the differences between the clusters and schedulers of two sweeps while trials ran. attemptsA and attemptsB are
// results of [Store.AllAttempts], and known is the result of [Compare]. A difference that follows from one in known has Follows set.
func CompareResults(a, b Sweep, attemptsA, attemptsB map[int][]Attempt, known []Difference) []Difference {
	x, y := a.firstResults(attemptsA), b.firstResults(attemptsB)
	var sizes, limits group
	for _, p := range pairConfigurations(a, b) {
		first, hasFirst := x[p.indexA]
		second, hasSecond := y[p.indexB]
		if !hasFirst || !hasSecond {
			continue
		}
		sizes.add("the size of the cluster", p.name, formatSize(first), formatSize(second))
		if first.Place != nil && second.Place != nil {
			sizes.add("the node with the commands", p.name, first.Place.Commands, second.Place.Commands)
		}
		for _, d := range compareLimits(first.Limits, second.Limits) {
			limits.add(d.What, p.name, d.A, d.B)
		}
	}
	changed := func(what string) bool {
		return slices.ContainsFunc(known, func(d Difference) bool { return strings.HasPrefix(d.What, what) })
	}
	for i := range sizes.out {
		sizes.out[i].Follows = changed(argumentsOfSet) || changed("the client")
	}
	for i := range limits.out {
		limits.out[i].Follows = changed(argumentsOfSet) || changed("the systems of ")
	}
	return slices.Concat(sizes.out, limits.out)
}

func formatSize(a Attempt) string {
	return fmt.Sprintf("%d nodes with %d processors", a.Result.Nodes, a.Result.CPUs)
}

// firstResults returns, by the index of a configuration, the first result of the configuration that counts.
func (s Sweep) firstResults(attempts map[int][]Attempt) map[int]Attempt {
	out := map[int]Attempt{}
	for _, t := range slices.Backward(s.Trials) {
		if i := slices.IndexFunc(attempts[t.Number], Attempt.Counts); i >= 0 {
			out[t.Configuration] = attempts[t.Number][i]
		}
	}
	return out
}

// compareLimits returns the limits whose values differ, and those that are in only one of the lists.
func compareLimits(a, b []player.Limit) (out []Difference) {
	values := map[string][2]string{} // in a and in b, by name
	for _, l := range a {
		values[l.Name] = [2]string{l.Value, ""}
	}
	for _, l := range b {
		values[l.Name] = [2]string{values[l.Name][0], l.Value}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if v := values[name]; v[0] != v[1] {
			out = append(out, Difference{What: name, A: cmp.Or(v[0], "none"), B: cmp.Or(v[1], "none")})
		}
	}
	return out
}

// CompareClosures returns the store paths that only one of two closures has, and the number of different paths of both closures. Paths of
// a begin with "-", paths of b with "+".
func CompareClosures(a, b []string) (changed []string, all int) {
	in := map[string]int{}
	for _, p := range a {
		in[p] |= 1
	}
	for _, p := range b {
		in[p] |= 2
	}
	for _, p := range slices.Sorted(maps.Keys(in)) {
		switch in[p] {
		case 1:
			changed = append(changed, "-"+p)
		case 2:
			changed = append(changed, "+"+p)
		}
	}
	return changed, len(in)
}

func packageNames(changed []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(stats.Map(changed, packageName))))
}

// packageName returns the name of a store path without the sign ("+" or "-"), the folder and the hash.
func packageName(path string) string {
	name := path[strings.LastIndex(path, "/")+1:]
	_, name, _ = strings.Cut(name, "-")
	return name
}

// DescribeClosures returns one line for each package that is in only one of two closures, or whose version or content differs.
func DescribeClosures(a, b []string) []string {
	changed, _ := CompareClosures(a, b)
	signs := map[string]string{}
	for _, c := range changed {
		name := packageName(c)
		if signs[name] = cmp.Or(signs[name], c[:1]); signs[name] != c[:1] {
			signs[name] = "changed:"
		}
	}
	return stats.Map(slices.Sorted(maps.Keys(signs)), func(name string) string { return signs[name] + " " + name })
}
