package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

const (
	encryptionSecret = "kubernetes-encryption" // the secret with the encryption keys of the API servers
	// encryptionEnv is an environment variable of the API server's pod. modules/kubernetes sets it to the
	// SHA-256 of the keys that the API server has loaded.
	encryptionEnv = "NIXBENCH_ENCRYPTION"
)

// MembersWithout implements [engine.Keyholder]. It checks the running API servers, and not the files on the
// nodes, because an API server uses new keys only after it has restarted.
func (e *Engine) MembersWithout(ctx context.Context, secret, sum string) ([]string, error) {
	if secret != encryptionSecret {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*engine.CommandTimeout)
	defer cancel()
	pods, err := e.List(ctx, "-n", "kube-system", "get", "pods", "-l", "component=kube-apiserver")
	if errors.Is(err, ErrNoControlPlane) {
		return nil, nil // the cluster does not exist, so no data are encrypted
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	behind := e.NodesOf(ControlPlane)
	for _, p := range pods {
		node := p.Get("spec.nodeName").String()
		behind = slices.DeleteFunc(behind, func(name string) bool { return name == node })
		if p.Get(`spec.containers.0.env.#(name=="`+encryptionEnv+`").value`).String() != sum || !IsReady(p) {
			behind = append(behind, node)
		}
	}
	slices.SortFunc(behind, nixeval.CompareNatural)
	return behind, nil
}
