package kubernetes

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"strings"
)

const (
	accessFolder = "/run/nixbench-bench-access"
	accessFile   = accessFolder + "/kubeconfig"
	// accessName is the name of the service account in access.json with which the client (the node that submits jobs) uses the API.
	accessName = "nixbench-bench-client"
	// tokenLife is how long the token of the service account is valid. The token ends earlier if its namespace is deleted.
	tokenLife = "168h"
)

// accessObjects are the Kubernetes objects in the namespace that allow the client to create jobs and watch pods.
//
//go:embed access.json
var accessObjects []byte

// giveAccess writes a kubeconfig to the client, the node that submits jobs. The kubeconfig contains a token with only the rights
// that a trial needs.
func (p *Player) giveAccess(ctx context.Context) error {
	if p.Client == "" {
		return nil
	}
	if _, err := p.runAdmin(ctx, accessObjects, "create", "--validate=false", "--filename=-"); err != nil && !strings.Contains(err.Error(), "(AlreadyExists)") {
		return fmt.Errorf("kubernetes: create the service account of the client: %w", err)
	}
	token, err := p.runAdmin(ctx, nil, "create", "token", accessName, "--namespace="+namespace, "--duration="+tokenLife)
	if err != nil {
		return fmt.Errorf("kubernetes: create the token of the client: %w", err)
	}
	access, err := p.engine.ReadAdminAccess(ctx)
	if err != nil {
		return fmt.Errorf("kubernetes: read the address of the API: %w", err)
	}
	kubeconfig, err := access.WithToken(strings.TrimSpace(string(token))).Kubeconfig()
	if err != nil {
		return err
	}
	if _, err := p.RunLong(ctx, p.Client, bytes.NewReader(kubeconfig), "sh", "-c", "umask 077; mkdir -p "+accessFolder+" && cat > "+accessFile); err != nil {
		return fmt.Errorf("kubernetes: write the kubeconfig of the client: %w", err)
	}
	return nil
}
