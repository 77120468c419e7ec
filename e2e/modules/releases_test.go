package modules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// release is a control plane of one release of Kubernetes.
type release struct {
	Warnings, Failed         []string
	Pause, Version           string
	ControllerManager, Kinds []string
}

func evaluateRelease(t *testing.T, nixpkgs, attribute string) release {
	t.Helper()
	var r release
	evaluate(t, nixpkgs, attribute, &r)
	return r
}

// Each step of the upgrade from 1.34 to 1.36 has a configuration that this release of kubeadm reads, without a warning.
func TestReleases(t *testing.T) {
	withEachNixpkgs(t, func(t *testing.T, nixpkgs string) {
		for version, want := range map[string]struct {
			pause string
			flex  bool // kubeadm mounts the folder of FlexVolume plugins
		}{
			"1.34.4": {"registry.k8s.io/pause:3.10.1", true},
			"1.35.3": {"registry.k8s.io/pause:3.10.1", true},
			"1.36.2": {"registry.k8s.io/pause:3.10.2", false},
		} {
			r := evaluateRelease(t, nixpkgs, fmt.Sprintf("releases.%q", version))
			if len(r.Warnings) > 0 || len(r.Failed) > 0 {
				t.Errorf("%s: warnings %q, failed assertions %q", version, r.Warnings, r.Failed)
			}
			if r.Pause != want.pause {
				t.Errorf("%s: the pause image is %q, want %q", version, r.Pause, want.pause)
			}
			if has := slices.Contains(r.ControllerManager, "flex-volume-plugin-dir"); has != want.flex {
				t.Errorf("%s: the controller manager has flex-volume-plugin-dir: %v, want %v", version, has, want.flex)
			}
			if kinds := slices.Compact(r.Kinds); !slices.Equal(kinds, []string{"kubeadm.k8s.io/v1beta4"}) || r.Version != "v"+version {
				t.Errorf("%s: the documents are of %v and of version %s", version, kinds, r.Version)
			}
		}
	})
}

// The release of Kubernetes that this nixpkgs has is supported.
func TestOwnRelease(t *testing.T) {
	withEachNixpkgs(t, func(t *testing.T, nixpkgs string) {
		if r := evaluateRelease(t, nixpkgs, "own"); len(r.Warnings) > 0 || len(r.Failed) > 0 || r.Pause == "" {
			t.Errorf("%s: %+v", r.Version, r)
		}
	})
}

// An unknown release has a warning, which the choice of a pause image hides.
func TestUnknownRelease(t *testing.T) {
	withEachNixpkgs(t, func(t *testing.T, nixpkgs string) {
		r := evaluateRelease(t, nixpkgs, `releases."1.37.0"`)
		if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "nixbench.kubernetes.version is 1.37.0, and these modules support releases up to 1.36") ||
			!strings.Contains(r.Warnings[0], "nixbench.kubernetes.containerRuntime.pauseImage") {
			t.Errorf("warnings: %q", r.Warnings)
		}
		for _, name := range []string{"chosen", "unset"} {
			if r := evaluateRelease(t, nixpkgs, "releases."+name); len(r.Warnings) > 0 {
				t.Errorf("%s: warnings %q", name, r.Warnings)
			}
		}
	})
}

// The kubelet of 1.35 and later does not start with cgroup v1.
func TestCgroupV1(t *testing.T) {
	withEachNixpkgs(t, func(t *testing.T, nixpkgs string) {
		r := evaluateRelease(t, nixpkgs, "releases.noCgroupV1")
		if len(r.Failed) != 1 || !strings.Contains(r.Failed[0], "kubelet of Kubernetes 1.35.3 does not start with cgroup v1: remove systemd.unified_cgroup_hierarchy=0 from boot.kernelParams") {
			t.Errorf("failed assertions: %q", r.Failed)
		}
		for _, name := range []string{"cgroupV1", "allowedCgroupV1"} {
			if r := evaluateRelease(t, nixpkgs, "releases."+name); len(r.Failed) > 0 {
				t.Errorf("%s: failed assertions %q", name, r.Failed)
			}
		}
	})
}
