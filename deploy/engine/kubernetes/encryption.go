package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// The secret with the encryption keys of the API servers, and the environment variable in which
// modules/kubernetes sets the SHA-256 of the keys that an API server has loaded.
const (
	encryptionSecret = "kubernetes-encryption"
	encryptionEnv    = "NIXBENCH_ENCRYPTION"
)

// MembersWithout implements [engine.Keyholder]. It checks the running API servers and not the files on the
// nodes, because an API server uses new keys only after it has restarted.
func (e *Engine) MembersWithout(ctx context.Context, secret, sum string) ([]string, error) {
	if secret != encryptionSecret {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*commandTimeout)
	defer cancel()
	pods, err := e.listObjects(ctx, "-n", "kube-system", "get", "pods", "-l", "component=kube-apiserver")
	if errors.Is(err, errNoControlPlane) {
		return nil, nil // nothing is stored yet
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	behind := map[string]bool{}
	for _, node := range e.controlPlanes() {
		behind[node] = true
	}
	for _, p := range pods {
		has := p.Get(`spec.containers.0.env.#(name=="`+encryptionEnv+`").value`).String() == sum
		behind[p.Get("spec.nodeName").String()] = !has || !isReady(p)
	}
	var names []string
	for name, is := range behind {
		if is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
