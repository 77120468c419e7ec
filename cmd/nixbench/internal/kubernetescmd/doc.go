// Package kubernetescmd contains the commands of nixbench that only clusters of Kubernetes have: kubeconfig, which
// fetches the credentials of the administrator, and kubectl, which runs kubectl with them.
package kubernetescmd

import (
	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/enginecmd"
)

// Commands implements [enginecmd.Commands].
func Commands(program enginecmd.Program) []*cobra.Command {
	return []*cobra.Command{kubeconfigCommand(program), kubectlCommand(program)}
}

const acceptNewHelp = "accept and store the keys of hosts that known_hosts does not contain"
