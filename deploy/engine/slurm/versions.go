package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/nixbench/nixbench/deploy/engine"
)

func (e *Engine) Versions(ctx context.Context, nodes []string) (map[string]engine.Change, error) {
	observed, err := e.observeVersions(ctx)
	if err != nil {
		return nil, nil // No error if the controller does not answer: this may be the first deployment, or a deployment that repairs the cluster.
	}
	changes, after, err := e.PlanVersions(nodes, observed)
	if err != nil {
		return nil, err
	}
	return changes, e.checkReleases(observed, after)
}

// observeVersions returns the versions of slurmctld and of each registered slurmd. If slurmdbd runs on a node of its own and
// answers, it also returns the version of slurmdbd.
func (e *Engine) observeVersions(ctx context.Context) (map[string]string, error) {
	config, err := e.readConfig(ctx)
	if err != nil {
		return nil, err
	}
	if config["SLURM_VERSION"] == "" {
		return nil, errors.New("scontrol show config on the controller printed no SLURM_VERSION")
	}
	nodes, err := e.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]string{e.Node(): config["SLURM_VERSION"]}
	if name := e.accountingNode(); name != "" && name != e.Node() && config.usesAccounting() {
		out, _ := e.RunOnHead(ctx, "sacctmgr", "show", "configuration") // slurmdbd may not answer
		if m := slurmdbdVersion.FindStringSubmatch(out); m != nil {
			all[name] = m[1]
		}
	}
	for name, n := range nodes {
		if n["Version"] != "" {
			all[name] = n["Version"]
		}
	}
	return all, nil
}

var slurmdbdVersion = regexp.MustCompile(`(?m)^SLURMDBD_VERSION\s*=\s*(\S+)`)

// daemon is a daemon of SLURM on a node, with its release.
type daemon struct {
	name, node string
	release
}

// checkReleases returns an error unless each daemon of this run can read the state that the running daemon has written, and accepts the daemons
// that connect to it.
func (e *Engine) checkReleases(observed, after map[string]string) error {
	running := func(name, node string) daemon { return daemon{name, node, parseRelease(observed[node])} }
	planned := func(name, node string) daemon { return daemon{name, node, parseRelease(after[node])} }
	controller := planned("slurmctld", e.Node())
	errs := []error{controller.checkSupport(running("slurmctld", e.Node()))}
	if name := e.accountingNode(); name != "" && name != e.Node() {
		accounting := planned("slurmdbd", name)
		errs = append(errs, accounting.checkSupport(running("slurmdbd", name)), accounting.checkSupport(controller))
	}
	for _, name := range e.NodesOf(Compute) {
		errs = append(errs, controller.checkSupport(planned("slurmd", name)))
	}
	return cmp.Or(errs...) // the first one
}

// checkSupport returns an error unless d supports the release of another daemon, which is the running one on the same node or connects to d.
func (d daemon) checkSupport(other daemon) error {
	switch {
	case d.release == 0 || other.release == 0:
		return nil
	case other.release > d.release:
		return engine.NewVersionError(fmt.Sprintf("set nixbench.slurm.package of %s to release %s or later, and apply to this node first or to all nodes at once", d.node, other.release),
			"slurm: nixbench.slurm.package of %s is release %s, and %s of %s has release %s: %s does not support newer releases", d.node, d.release, other.name, other.node, other.release, d.name)
	case other.release < d.oldestSupported():
		return engine.NewVersionError(fmt.Sprintf("apply release %s to all nodes first", d.oldestSupported()),
			"slurm: nixbench.slurm.package of %s is release %s, and %s of %s has release %s: this %s does not support releases before %s", d.node, d.release, other.name, other.node, other.release, d.name, d.oldestSupported())
	}
	return nil
}

// release counts the releases of SLURM: 24.05, 24.11 and 25.05 are consecutive numbers.
type release int

// firstYear is the year of release 23.11, which has the number 1. Since then there is a release in each May and November.
const firstYear = 23

var releaseForm = regexp.MustCompile(`^(\d\d)\.(05|11)(\.|$)`)

// parseRelease returns the release of a version such as 24.11.5, or 0 for releases before 23.11.
func parseRelease(version string) release {
	m := releaseForm.FindStringSubmatch(version)
	if m == nil {
		return 0
	}
	year, _ := strconv.Atoi(m[1]) // has two digits
	r := release(2 * (year - firstYear))
	if m[2] == "11" {
		r++
	}
	return max(r, 0)
}

// widerSupport is release 24.11. SLURM 24.11 and later support the three releases before their own, and older releases support two.
const widerSupport release = 3

// oldestSupported returns the oldest release that works with r: r can read its state, and accepts its daemons.
func (r release) oldestSupported() release {
	if r < widerSupport {
		return r - 2
	}
	return r - 3
}

func (r release) String() string {
	month := "05"
	if r%2 == 1 {
		month = "11"
	}
	return fmt.Sprintf("%d.%s", firstYear+int(r)/2, month)
}
