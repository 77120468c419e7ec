// Package volcano tests modules/kubernetes/volcano.nix on a real Kubernetes cluster. No package registry has Volcano, so the tests need its
// source in the folder NIXBENCH_VOLCANO_SRC (see e2e/kube/README.md), and are skipped without it.
package volcano
