package slurm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/nixbench/nixbench/deploy/engine"
)

// maxSkew is the maximum number of releases that slurmd may be older than slurmctld, and that slurmctld may
// skip in an upgrade. slurmctld must not be older than slurmd.
const maxSkew = 2

// Versions implements [engine.Versioned].
func (e *Engine) Versions(ctx context.Context, nodes []string) (map[string]engine.Change, error) {
	observed, err := e.observeVersions(ctx)
	if err != nil {
		return nil, nil // not an error: this may be the first deployment, or a deployment that repairs the cluster
	}
	changes := map[string]engine.Change{}
	after := map[string]release{} // the releases when the run has ended
	for name, version := range observed {
		after[name], _ = parseRelease(version)
	}
	for _, name := range nodes {
		s, err := e.settingsOf(name)
		if err != nil {
			return nil, err
		}
		from, isMember := observed[name]
		to, valid := parseRelease(s.Version)
		if !valid {
			continue
		}
		after[name] = to
		if isMember && from != s.Version {
			changes[name] = engine.Change{From: from, To: s.Version}
		}
	}
	return changes, e.checkReleases(observed, after)
}

// observeVersions returns the versions of slurmctld and of each registered slurmd.
func (e *Engine) observeVersions(ctx context.Context) (map[string]string, error) {
	out, err := e.runOnController(ctx, "scontrol", "show", "config")
	if err != nil {
		return nil, err
	}
	version := regexp.MustCompile(`(?m)^SLURM_VERSION\s*=\s*(\S+)`).FindStringSubmatch(out)
	if version == nil {
		return nil, errors.New("scontrol show config on the controller printed no SLURM_VERSION")
	}
	nodes, err := e.listNodes(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]string{e.controller(): version[1]}
	for name, n := range nodes {
		if n["Version"] != "" {
			all[name] = n["Version"]
		}
	}
	return all, nil
}

// checkReleases returns a VersionError if the releases after the run are not supported together, or if slurmctld
// cannot read the state that its running version has written.
func (e *Engine) checkReleases(observed map[string]string, after map[string]release) error {
	controller := e.controller()
	running, known := parseRelease(observed[controller])
	desired := after[controller]
	switch {
	case !known:
		return nil
	case desired < running:
		return &engine.VersionError{
			Text:   fmt.Sprintf("slurm: the controller runs release %s, and nixbench.slurm.package of %s is %s: slurmctld cannot read the state of a newer release", running, controller, desired),
			Remedy: fmt.Sprintf("set nixbench.slurm.package to release %s or later", running),
		}
	case desired > running+maxSkew:
		return &engine.VersionError{
			Text:   fmt.Sprintf("slurm: the controller runs release %s, and nixbench.slurm.package of %s is %s: slurmctld cannot read the state of a release that is more than two releases older", running, controller, desired),
			Remedy: fmt.Sprintf("apply with release %s first", running+maxSkew),
		}
	}
	for _, m := range e.Cluster.Members {
		switch r, known := after[m.Node]; {
		case !known || m.Node == controller || r == 0:
		case r > desired:
			return &engine.VersionError{
				Text:   fmt.Sprintf("slurm: nixbench.slurm.package of %s is release %s, and that of the controller %s: slurmd must not be newer than slurmctld", m.Node, r, desired),
				Remedy: "apply to the controller first, or to all nodes at once",
			}
		case r+maxSkew < desired:
			return &engine.VersionError{
				Text:   fmt.Sprintf("slurm: %s has release %s, and nixbench.slurm.package of the controller is %s: slurmd must not be more than two releases older than slurmctld", m.Node, r, desired),
				Remedy: fmt.Sprintf("apply with release %s to all nodes first", r+maxSkew),
			}
		}
	}
	return nil
}

// release is a release of SLURM, such as 24.11. Its number is one more than that of the release before.
type release int

// firstYear is the year of release 23.11, which has the number 1. Since then there is a release in each May and
// November.
const firstYear = 23

var releaseForm = regexp.MustCompile(`^(\d\d)\.(05|11)(\.|$)`)

// parseRelease returns the release of a version such as 24.11.5. It returns false for releases before 23.11.
func parseRelease(version string) (release, bool) {
	m := releaseForm.FindStringSubmatch(version)
	if m == nil {
		return 0, false
	}
	year, _ := strconv.Atoi(m[1]) // has two digits
	r := release(2 * (year - firstYear))
	if m[2] == "11" {
		r++
	}
	return r, r >= 1
}

func (r release) String() string {
	month := "05"
	if r%2 == 1 {
		month = "11"
	}
	return fmt.Sprintf("%d.%s", firstYear+int(r)/2, month)
}
