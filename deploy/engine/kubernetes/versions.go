package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// maxKubeletSkew is the number of minor releases that a kubelet may be older than the API server.
const maxKubeletSkew = 3

// Versions implements [engine.Versioned], with the rules of the version skew policies of Kubernetes and
// kubeadm. An API server is upgraded by at most one minor release, and is never downgraded. A kubelet must
// not be newer than the API server, and must not be more than maxKubeletSkew minor releases older.
func (e *Engine) Versions(ctx context.Context, nodes []string) (map[string]engine.Change, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*engine.CommandTimeout)
	defer cancel()
	observed, err := e.Nodes(ctx)
	if err != nil {
		return nil, nil // not an error: this may be the first deployment, or a deployment that repairs the cluster
	}
	s := skew{kubelets: map[string]release{}}
	different := false
	for _, m := range e.Cluster.Members {
		next := member{name: m.Node, controlPlane: m.Role == ControlPlane, deployed: slices.Contains(nodes, m.Node)}
		if next.desired, err = desiredRelease(m); err != nil {
			return nil, err
		}
		if kubelet, ok := parseRelease(observed[m.Node].Get("status.nodeInfo.kubeletVersion").String()); ok {
			s.kubelets[m.Node] = kubelet
		}
		different = different || next.deployed && s.kubelets[m.Node] != next.desired
		s.members = append(s.members, next)
	}
	if !different {
		return nil, nil
	}
	if s.apis = e.readAPIVersions(ctx); len(s.apis) == 0 {
		return nil, nil
	}
	return s.versionChanges(), s.checkChanges()
}

// desiredRelease returns the version of Kubernetes that the hive sets for a member, or the zero release if
// the hive sets none.
func desiredRelease(m engine.Member) (release, error) {
	var s settings
	if err := m.ReadSettings(&s); err != nil || s.Version == "" {
		return release{}, err
	}
	r, ok := parseRelease(s.Version)
	if !ok {
		return release{}, failure.On(m.Node, fmt.Errorf("deployment.engine.settings.version: %q is no version such as 1.34.4", s.Version))
	}
	return r, nil
}

// readAPIVersions returns the version of each API server that answers, by control plane.
func (e *Engine) readAPIVersions(ctx context.Context) map[string]release {
	all := e.NodesOf(ControlPlane)
	answers := make([]release, len(all))
	var asked sync.WaitGroup
	for i, node := range all {
		asked.Go(func() {
			if out, err := e.KubectlOn(ctx, node, "", "version", "-o", "json"); err == nil {
				answers[i], _ = parseRelease(gjson.GetBytes(out, "serverVersion.gitVersion").String())
			}
		})
	}
	asked.Wait()
	answered := map[string]release{}
	for i, node := range all {
		if answers[i] != (release{}) {
			answered[node] = answers[i]
		}
	}
	return answered
}

// skew contains the observed and the desired versions of a cluster.
type skew struct {
	members  []member
	apis     map[string]release // the versions of the running API servers, by control plane
	kubelets map[string]release // the versions of the kubelets, by registered node
}

// member is a member in the hive.
type member struct {
	name         string
	controlPlane bool
	deployed     bool    // whether this run deploys the member
	desired      release // the version in the hive
}

// versionChanges returns the version changes of the nodes that this run deploys, by node. The current version
// of a control plane is the version of its API server or of its kubelet, whichever is older, because an
// interrupted upgrade may have upgraded only one of the two programs.
func (s skew) versionChanges() map[string]engine.Change {
	out := map[string]engine.Change{}
	for _, m := range s.members {
		from, registered := s.kubelets[m.name]
		if api, ok := s.apis[m.name]; ok && api.compare(from) < 0 {
			from = api
		}
		if m.deployed && registered && from != m.desired && m.desired != (release{}) {
			out[m.name] = engine.Change{From: from.String(), To: m.desired.String()}
		}
	}
	return out
}

// checkChanges returns a VersionError if a version change is not supported.
func (s skew) checkChanges() error {
	oldest, newest := s.oldestAndNewest(s.apis)
	after := map[string]release{}
	upgrade := false
	for _, m := range s.members {
		api, answered := s.apis[m.name]
		if !m.controlPlane || !answered {
			continue
		}
		after[m.name] = api
		if !m.deployed || m.desired == (release{}) || m.desired == api && s.kubelets[m.name] == api {
			continue
		}
		if m.desired.compare(newest) < 0 {
			return newVersionError(fmt.Sprintf("set nixbench.kubernetes.package to release %s or later", newest),
				"kubernetes: the control plane runs %s, and nixbench.kubernetes.version of %s is %s: a control plane cannot go back", newest, m.name, m.desired)
		}
		if m.desired.minor > oldest.minor+1 {
			return newVersionError(upgradeSteps(oldest, m.desired),
				"kubernetes: the control plane runs %s, and nixbench.kubernetes.version of %s is %s: kubeadm goes from one minor release to the next only", oldest, m.name, m.desired)
		}
		after[m.name] = m.desired
		upgrade = upgrade || m.desired != api
	}
	oldest, newest = s.oldestAndNewest(after)
	for _, m := range s.members {
		kubelet, registered := s.kubelets[m.name]
		changes := m.deployed && m.desired != (release{}) && m.desired != kubelet
		switch {
		case changes && !m.controlPlane && m.desired.minor > oldest.minor:
			return newVersionError("apply to the control plane first, or to all nodes at once",
				"kubernetes: nixbench.kubernetes.version of %s is %s, and the API of the control plane %s: a kubelet must not be newer", m.name, m.desired, oldest)
		case changes && m.desired.minor+maxKubeletSkew < newest.minor:
			return newVersionError(fmt.Sprintf("set nixbench.kubernetes.package of %s to release %d.%d or later", m.name, newest.major, newest.minor-maxKubeletSkew),
				"kubernetes: nixbench.kubernetes.version of %s is %s, and the API of the control plane %s: a kubelet must not be more than three minor releases older", m.name, m.desired, newest)
		case upgrade && registered && kubelet.minor+maxKubeletSkew < newest.minor:
			return newVersionError(fmt.Sprintf("upgrade %s to release %d.%d or later first, before the control plane", m.name, newest.major, newest.minor-maxKubeletSkew),
				"kubernetes: nixbench.kubernetes.version of the control plane is %s, and %s has a kubelet of %s: a kubelet must not be more than three minor releases older", newest, m.name, kubelet)
		}
	}
	return nil
}

// oldestAndNewest returns the oldest and the newest of some releases, or two zero releases if there are none.
func (s skew) oldestAndNewest(of map[string]release) (oldest, newest release) {
	for _, r := range of {
		if oldest == (release{}) || r.compare(oldest) < 0 {
			oldest = r
		}
		if r.compare(newest) > 0 {
			newest = r
		}
	}
	return oldest, newest
}

// upgradeSteps describes the steps of an upgrade over several minor releases, of which none may be left out.
func upgradeSteps(from, to release) string {
	var b strings.Builder
	fmt.Fprintf(&b, "set nixbench.kubernetes.package to release %d.%d and apply", from.major, from.minor+1)
	for minor := from.minor + 2; minor < to.minor; minor++ {
		fmt.Fprintf(&b, "; then to %d.%d", from.major, minor)
	}
	fmt.Fprintf(&b, "; then to %s", to)
	return b.String()
}

func newVersionError(remedy, format string, args ...any) error {
	return &engine.VersionError{Text: fmt.Sprintf(format, args...), Remedy: remedy}
}

// release is a version of Kubernetes.
type release struct {
	major, minor, patch int
	pre                 string // the pre-release, such as rc.1; empty for the final release
}

// parseRelease parses a version such as v1.34.4 or 1.34.4. It returns false if the version is not valid.
func parseRelease(s string) (release, bool) {
	s, _, _ = strings.Cut(strings.TrimPrefix(s, "v"), "+")
	numbers, pre, _ := strings.Cut(s, "-")
	r := release{pre: pre}
	parts := strings.Split(numbers, ".")
	if len(parts) != 3 {
		return release{}, false
	}
	for i, into := range []*int{&r.major, &r.minor, &r.patch} {
		n, err := strconv.Atoi(parts[i])
		if err != nil || n < 0 {
			return release{}, false
		}
		*into = n
	}
	return r, true
}

func (r release) String() string {
	s := fmt.Sprintf("%d.%d.%d", r.major, r.minor, r.patch)
	if r.pre != "" {
		s += "-" + r.pre
	}
	return s
}

// compare returns -1 if r is older than other, 0 if they are equal, and 1 if r is newer. A pre-release is older
// than the final release.
func (r release) compare(other release) int {
	rank := func(r release) int {
		if r.pre != "" {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(r.major, other.major), cmp.Compare(r.minor, other.minor), cmp.Compare(r.patch, other.patch),
		cmp.Compare(rank(r), rank(other)), cmp.Compare(r.pre, other.pre))
}
