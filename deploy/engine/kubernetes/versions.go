package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// maxKubeletSkew is the number of minor releases that a kubelet may be older than the API server.
const maxKubeletSkew = 3

// Versions implements [engine.Engine], with the rules of the version skew policies of Kubernetes and
// kubeadm. An API server is upgraded by at most one minor release, and is never downgraded. A kubelet must
// not be newer than the API server, and must not be more than maxKubeletSkew minor releases older.
//
// The version of a control plane's kubelet counts as that of its API server, because both are upgraded together.
func (e *Engine) Versions(ctx context.Context, nodes []string) (map[string]engine.Change, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*engine.CommandTimeout)
	defer cancel()
	nodesInCluster, err := e.Nodes(ctx)
	if err != nil {
		return nil, nil // No error if no API server answers: this may be the first deployment, or a deployment that repairs the cluster.
	}
	observed := map[string]string{}
	for name, n := range nodesInCluster {
		if running := parseRelease(n.Get("status.nodeInfo.kubeletVersion").String()); !running.isUnknown() {
			observed[name] = running.String()
		}
	}
	changes, desired, err := e.PlanVersions(nodes, observed)
	if err != nil {
		return nil, err
	}
	var members []member
	for _, m := range e.Cluster.Members {
		next := member{m, parseRelease(observed[m.Node]), parseRelease(desired[m.Node])}
		if desired[m.Node] != "" && next.after.isUnknown() {
			return nil, failure.On(m.Node, fmt.Errorf("deployment.engine.settings.version: %q is no version such as 1.34.4", desired[m.Node]))
		}
		members = append(members, next)
	}
	return changes, checkSkew(members)
}

type member struct {
	engine.Member
	running release // the version of the running kubelet; unknown if the node is not registered
	after   release // the version after this run
}

// changes reports whether this run changes the version, or the member joins.
func (m member) changes() bool { return m.after != m.running }

func checkSkew(members []member) error {
	oldest, newest := controlPlaneVersions(members, func(m member) release { return m.running })
	if oldest.isUnknown() {
		return nil
	}
	upgrade := false
	for _, m := range members {
		if m.Role != ControlPlane || !m.changes() || m.running.isUnknown() {
			continue
		}
		if m.after.compare(newest) < 0 {
			return engine.NewVersionError(fmt.Sprintf("set nixbench.kubernetes.package to release %s or later", newest),
				"kubernetes: the control plane runs %s, and nixbench.kubernetes.version of %s is %s: a control plane cannot go back", newest, m.Node, m.after)
		}
		if m.after.minor > oldest.minor+1 {
			return engine.NewVersionError(fmt.Sprintf("set nixbench.kubernetes.package to release %d.%d and apply; then to the next minor release", oldest.major, oldest.minor+1),
				"kubernetes: the control plane runs %s, and nixbench.kubernetes.version of %s is %s: kubeadm goes from one minor release to the next only", oldest, m.Node, m.after)
		}
		upgrade = true
	}
	oldest, newest = controlPlaneVersions(members, func(m member) release { return m.after })
	for _, m := range members {
		kubelet := m.after // the older one of its versions during an upgrade of the control plane
		if upgrade && !m.running.isUnknown() && m.running.compare(kubelet) < 0 {
			kubelet = m.running
		}
		switch {
		case m.changes() && m.Role != ControlPlane && m.after.minor > oldest.minor:
			return engine.NewVersionError("apply to the control plane first, or to all nodes at once",
				"kubernetes: nixbench.kubernetes.version of %s is %s, and the API of the control plane %s: a kubelet must not be newer", m.Node, m.after, oldest)
		case (upgrade || m.changes()) && !kubelet.isUnknown() && kubelet.minor+maxKubeletSkew < newest.minor:
			return engine.NewVersionError(fmt.Sprintf("set nixbench.kubernetes.package of %s to release %d.%d or later, and apply to it before the control plane", m.Node, newest.major, newest.minor-maxKubeletSkew),
				"kubernetes: nixbench.kubernetes.version of the control plane is %s, and the kubelet of %s is, or would be, %s: a kubelet must not be more than three minor releases older", newest, m.Node, kubelet)
		}
	}
	return nil
}

func controlPlaneVersions(members []member, of func(member) release) (oldest, newest release) {
	var all []release
	for _, m := range members {
		if m.Role == ControlPlane && !m.running.isUnknown() {
			all = append(all, of(m))
		}
	}
	if len(all) == 0 {
		return release{}, release{}
	}
	return slices.MinFunc(all, release.compare), slices.MaxFunc(all, release.compare)
}

// release is a version of Kubernetes, without the name of a pre-release. The zero value is an unknown version.
type release struct{ major, minor, patch int }

var releaseForm = regexp.MustCompile(`^v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:[-+].*)?$`)

// parseRelease parses a version such as v1.34.4 or 1.34.4. The release is unknown if the version is not valid.
func parseRelease(s string) release {
	m := releaseForm.FindStringSubmatch(s)
	if m == nil {
		return release{}
	}
	number := func(text string) int { n, _ := strconv.Atoi(text); return n } // text contains only digits, so there is no error
	return release{number(m[1]), number(m[2]), number(m[3])}
}

func (r release) isUnknown() bool { return r == release{} }

func (r release) String() string { return fmt.Sprintf("%d.%d.%d", r.major, r.minor, r.patch) }

func (r release) compare(other release) int {
	return cmp.Or(cmp.Compare(r.major, other.major), cmp.Compare(r.minor, other.minor), cmp.Compare(r.patch, other.patch))
}
