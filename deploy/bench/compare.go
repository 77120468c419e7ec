package bench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Difference is something in which two sweeps differ, apart from their results.
type Difference struct {
	What string `json:"what"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// Compare returns in what two sweeps differ. A difference between their results has a single cause only if they differ in one thing.
func Compare(a, b Sweep) []Difference {
	var out []Difference
	add := func(what, x, y string) {
		if x != y {
			out = append(out, Difference{what, x, y})
		}
	}
	add("the nixbench", a.Nixbench, b.Nixbench)
	add("the kernel", a.Host.Kernel, b.Host.Kernel)
	add("the processor", fmt.Sprintf("%d × %s", a.Host.CPUs, a.Host.CPU), fmt.Sprintf("%d × %s", b.Host.CPUs, b.Host.CPU))
	add("the memory", fmt.Sprintf("%d MiB", a.Host.Memory), fmt.Sprintf("%d MiB", b.Host.Memory))
	add("the order", fmt.Sprintf("%s, seed %d", a.Benchmark.Order, a.Benchmark.Seed), fmt.Sprintf("%s, seed %d", b.Benchmark.Order, b.Benchmark.Seed))
	add("the reset", a.Benchmark.Reset, b.Benchmark.Reset)
	add("the client", cmp.Or(a.Benchmark.Client, "none"), cmp.Or(b.Benchmark.Client, "none"))
	names := slices.Sorted(maps.Keys(a.Workloads))
	for _, name := range names {
		if other, ok := b.Workloads[name]; ok {
			add("the workload "+name, a.Workloads[name].Hash, other.Hash)
			add("the program of the workload "+name, a.Workloads[name].Program, other.Program)
		}
	}
	for _, c := range a.Configurations {
		i := slices.IndexFunc(b.Configurations, func(o Configuration) bool { return maps.Equal(c.Levels, o.Levels) })
		if i < 0 {
			continue
		}
		o := b.Configurations[i]
		add("the hollow nodes of "+describeLevels(c.Levels), fmt.Sprint(c.Hollow), fmt.Sprint(o.Hollow))
		if changed, all := CompareClosures(c.Closure, o.Closure); len(changed) > 0 {
			out = append(out, Difference{"the systems of " + describeLevels(c.Levels), fmt.Sprintf("differ in %d of %d paths", len(changed), all), strings.Join(shorten(changed), ", ")})
		}
	}
	return out
}

func describeLevels(levels map[string]string) string {
	if len(levels) == 0 {
		return "the only configuration"
	}
	return FormatCell(levels)
}

// CompareClosures returns the store paths that only one of two closures has, and the number of all paths. Removed paths begin with "-",
// added ones with "+".
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

// maxShown is the number of changed paths that a message contains.
const maxShown = 6

// shorten returns the names of changed paths without their hashes, each once, and how many more there are.
func shorten(changed []string) []string {
	var out []string
	for _, c := range changed {
		out = append(out, packageName(c))
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if more := len(out) - maxShown; more > 0 {
		out = append(out[:maxShown], fmt.Sprintf("and %d more", more))
	}
	return out
}

// packageName returns the name of a store path, after its sign and its hash.
func packageName(path string) string {
	name := path[strings.LastIndex(path, "/")+1:]
	_, name, _ = strings.Cut(name, "-")
	return name
}

// DescribeClosures returns one line for each package that only one of two closures has, or that has another version or content.
func DescribeClosures(a, b []string) []string {
	changed, _ := CompareClosures(a, b)
	signs := map[string]string{}
	for _, c := range changed {
		name := packageName(c)
		if signs[name] != "" && signs[name] != c[:1] {
			signs[name] = "changed:"
		} else if signs[name] == "" {
			signs[name] = c[:1]
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(signs)) {
		out = append(out, signs[name]+" "+name)
	}
	return out
}
