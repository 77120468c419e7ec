package bench

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/stats"
)

// LevelDifference is the difference between the systems of two configurations of a sweep.
type LevelDifference struct {
	A        map[string]string `json:"a"`
	B        map[string]string `json:"b"`
	Factors  []string          `json:"factors"`            // factors whose levels differ
	Changed  int               `json:"changed"`            // number of store paths that only one of the two configurations has
	Paths    int               `json:"paths"`              // number of different store paths of both configurations
	Packages []string          `json:"packages,omitempty"` // the changed packages, as DescribeClosures returns them
	// Undeclared are the store paths and limits that differ between the systems, although the levels of the factors do not
	// declare the difference.
	Undeclared []string `json:"undeclared,omitempty"`
}

// String returns the difference as text, such as `differs in 3 of 214 paths`.
func (d LevelDifference) String() string {
	if d.Changed == 0 {
		return fmt.Sprintf("has the same %d paths", d.Paths)
	}
	return fmt.Sprintf("differs in %d of %d paths", d.Changed, d.Paths)
}

// CompareLevels compares all pairs of configurations that differ in the level of exactly one factor. It compares their systems, and the
// limits with which their schedulers ran. A configuration that is in no such pair is compared with the first configuration.
// attempts is the result of [Store.AllAttempts].
func (s Sweep) CompareLevels(attempts map[int][]Attempt) []LevelDifference {
	var out []LevelDifference
	paired, first := map[int]bool{}, s.firstResults(attempts)
	add := func(i, k int) {
		out = append(out, compareConfigurations(s.Configurations[i], s.Configurations[k], first[i].Limits, first[k].Limits))
	}
	for k := range s.Configurations {
		for i := range k {
			if len(findChanged(s.Configurations[i].Levels, s.Configurations[k].Levels)) == 1 {
				add(i, k)
				paired[i], paired[k] = true, true
			}
		}
	}
	for k := 1; k < len(s.Configurations); k++ {
		if !paired[k] {
			add(0, k)
		}
	}
	return out
}

func findChanged(a, b map[string]string) []string {
	return stats.Keep(slices.Sorted(maps.Keys(a)), func(f string) bool { return a[f] != b[f] })
}

// sizeForm matches the factors that change the number or the hardware of machines, and not the programs on the machines.
var sizeForm = regexp.MustCompile(`^roles\.[^.]+\.(count|vcpus|memory|disk|disks|cpuPins)$`)

// packageForm matches the names of store paths of packages, which contain a version. Other paths are configuration, such as a
// list of the addresses of all nodes.
var packageForm = regexp.MustCompile(`^[A-Za-z].*-[0-9]+\.[0-9]`)

// ownForm matches the names of store paths that differ from node to node. They are not packages, even if the name contains a version.
var ownForm = regexp.MustCompile(`^(nixos-system-|initrd-|unit-|etc-)`)

// compareConfigurations compares the systems of two configurations, and the limits with which their schedulers ran. If the configurations differ
// only in the sizes of machines, changed packages and limits are undeclared differences.
func compareConfigurations(a, b Configuration, limitsA, limitsB []player.Limit) LevelDifference {
	d := LevelDifference{A: a.Levels, B: b.Levels, Factors: findChanged(a.Levels, b.Levels), Packages: DescribeClosures(a.Closure, b.Closure)}
	changed, all := CompareClosures(a.Closure, b.Closure)
	d.Changed, d.Paths = len(changed), all
	if slices.ContainsFunc(d.Factors, func(f string) bool { return !sizeForm.MatchString(f) }) {
		return d // all differences are declared: another scheduler, module or setting may change any path
	}
	for _, p := range d.Packages {
		sign, name, _ := strings.Cut(p, " ")
		if packageForm.MatchString(name) && !ownForm.MatchString(name) {
			d.Undeclared = append(d.Undeclared, describeSign[sign]+" "+name)
		}
	}
	if len(limitsA) > 0 && len(limitsB) > 0 {
		for _, l := range compareLimits(limitsA, limitsB) {
			d.Undeclared = append(d.Undeclared, fmt.Sprintf("%s is %s and %s", l.What, l.A, l.B))
		}
	}
	return d
}

// DescribeTuning returns, for each scheduler of the cells for which of returns true, which of its limits the level [Tuned] has changed, as the
// running schedulers have reported them. attempts is the result of [Store.AllAttempts].
func (s Sweep) DescribeTuning(attempts map[int][]Attempt, of func(levels map[string]string) bool) (out []string) {
	first := s.firstResults(attempts)
	for i, c := range s.Configurations {
		if c.Levels[LimitsFactor] != Tuned || !of(c.Levels) {
			continue
		}
		var changed []string
		for k, other := range s.Configurations {
			if slices.Equal(findChanged(c.Levels, other.Levels), []string{LimitsFactor}) {
				for _, l := range compareLimits(first[k].Limits, first[i].Limits) {
					changed = append(changed, fmt.Sprintf("%s is %s instead of %s", l.What, l.B, l.A))
				}
			}
		}
		if changed == nil { // there is no such configuration with the defaults
			for _, l := range first[i].Limits {
				if !strings.HasSuffix(l.Value, "(default)") {
					changed = append(changed, l.Name+" is "+l.Value)
				}
			}
		}
		text := strings.TrimSpace(c.Levels["scheduler"]+" with limits=tuned: ") + " " + strings.Join(changed, "; ") + "."
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

var describeSign = map[string]string{"-": "only the first has", "+": "only the second has", "changed:": "another build of"}
