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
	releases := map[string]release{}
	for name, version := range after {
		releases[name] = parseRelease(version)
	}
	return changes, e.checkReleases(observed, releases)
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

func (e *Engine) checkReleases(observed map[string]string, after map[string]release) error {
	controller := e.Node()
	errs := []error{checkUpgrade("slurmctld", controller, observed[controller], after[controller])}
	if name := e.accountingNode(); name != "" && name != controller {
		errs = append(errs, checkUpgrade("slurmdbd", name, observed[name], after[name]),
			checkPair("slurmdbd", name, after[name], "slurmctld", controller, after[controller]))
	}
	for _, name := range e.NodesOf(Compute) {
		errs = append(errs, checkPair("slurmctld", controller, after[controller], "slurmd", name, after[name]))
	}
	return cmp.Or(errs...) // the first one
}

// checkUpgrade returns an error unless a daemon of the desired release can read the state that the running daemon has written.
func checkUpgrade(daemon, node, observed string, desired release) error {
	running := parseRelease(observed)
	switch {
	case running == 0 || desired == 0:
		return nil
	case desired < running:
		return engine.NewVersionError(fmt.Sprintf("set nixbench.slurm.package to release %s or later", running),
			"slurm: %s runs %s of release %s, and its nixbench.slurm.package is %s: %s cannot read the state of a newer release", node, daemon, running, desired, daemon)
	case running < desired.oldestSupported():
		return engine.NewVersionError(fmt.Sprintf("apply with release %s first", running.newestReader()),
			"slurm: %s runs %s of release %s, and its nixbench.slurm.package is %s, which cannot read the state of releases before %s", node, daemon, running, desired, desired.oldestSupported())
	}
	return nil
}

// checkPair returns an error unless the server, such as slurmctld, accepts the release of the client, such as slurmd.
func checkPair(server, serverNode string, serverRelease release, client, clientNode string, clientRelease release) error {
	switch {
	case serverRelease == 0 || clientRelease == 0:
		return nil
	case clientRelease > serverRelease:
		return engine.NewVersionError("apply to "+serverNode+" first, or to all nodes at once",
			"slurm: nixbench.slurm.package of %s is release %s, and that of %s %s: %s must not be newer than %s", clientNode, clientRelease, serverNode, serverRelease, client, server)
	case clientRelease < serverRelease.oldestSupported():
		return engine.NewVersionError(fmt.Sprintf("apply with release %s to all nodes first", clientRelease.newestReader()),
			"slurm: %s has release %s, and nixbench.slurm.package of %s is %s: this %s does not support a %s before release %s", clientNode, clientRelease, serverNode, serverRelease, server, client, serverRelease.oldestSupported())
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

// newestReader returns the newest release that can read the state that r has written.
func (r release) newestReader() release {
	for newest := r + 3; newest > r; newest-- {
		if newest.oldestSupported() <= r {
			return newest
		}
	}
	return r
}

func (r release) String() string {
	month := "05"
	if r%2 == 1 {
		month = "11"
	}
	return fmt.Sprintf("%d.%s", firstYear+int(r)/2, month)
}
