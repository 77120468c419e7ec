package kubernetescmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/enginecmd"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
)

const kubeconfigLong = `Fetch the administrator's kubeconfig of a Kubernetes cluster. The file is
written into the state folder, or to -o FILE. With this file, a client may do
everything in the cluster.

Its certificate expires within a year. Run this command again to get a file with
a new certificate; nixbench status reports when the file in the state folder
needs it.

If the API's address cannot be reached from this machine, --forward forwards the
API through the SSH connection to a control plane, as long as the command runs.`

type kubeconfigFlags struct {
	acceptNew    bool
	output, name string
	forward      bool
	port         int
}

func kubeconfigCommand(program enginecmd.Program) *cobra.Command {
	var flags kubeconfigFlags
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Fetch a kubeconfig of the cluster",
		Long:  kubeconfigLong,
		Example: `  export KUBECONFIG=$(nixbench kubeconfig) && kubectl get nodes
  nixbench kubeconfig --forward`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = program.Body(func(ctx context.Context, _ []string) error { return runKubeconfig(ctx, program, flags) })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&flags.output, "output", "o", "", "write it to `FILE`; - is standard output")
	f.StringVar(&flags.name, "context", "", "name the context and its cluster `NAME` (default: the cluster's name)")
	f.BoolVar(&flags.forward, "forward", false, "forward the API through SSH, until Ctrl-C")
	f.IntVar(&flags.port, "port", 0, "local `PORT` for --forward (default: any that is free)")
	f.BoolVar(&flags.acceptNew, "accept-new-host-keys", false, acceptNewHelp)
	return cmd
}

func runKubeconfig(ctx context.Context, program enginecmd.Program, flags kubeconfigFlags) error {
	if flags.port != 0 && !flags.forward {
		return enginecmd.UsageError("--port requires --forward")
	}
	cluster, err := program.OpenCluster("kubeconfig", kubernetes.Kind, flags.acceptNew)
	if err != nil {
		return err
	}
	defer cluster.Close()
	access, err := kubernetes.New(cluster.Cluster).ReadAdminAccess(ctx)
	if err != nil {
		return err
	}
	view := program.View()
	if ends := access.Ends(); !ends.IsZero() {
		view.Note("its certificate ends on " + ends.Format(time.DateOnly) + "; then run nixbench kubeconfig again")
	}
	if flags.name != "" {
		access.Cluster = flags.name
	}
	if !flags.forward {
		return writeKubeconfig(view, cluster, access, flags)
	}
	tunnel, err := forwardAPI(ctx, cluster, access, flags.port)
	if err != nil {
		return err
	}
	defer tunnel.Close()
	if flags.output == "" {
		flags.output = tunnel.File()
	}
	if err := writeKubeconfig(view, cluster, access, flags); err != nil {
		return err
	}
	return tunnel.Wait(ctx)
}

// writeKubeconfig writes a kubeconfig to the file or the place that the flags name, and shows where it is.
func writeKubeconfig(view enginecmd.View, cluster *enginecmd.Cluster, access *kubernetes.Access, flags kubeconfigFlags) error {
	config, err := access.Kubeconfig()
	if err != nil {
		return err
	}
	if flags.output == "-" {
		view.Result(json.RawMessage(config), func(w io.Writer) { _, _ = w.Write(config) })
		return nil
	}
	file := flags.output
	if file == "" {
		if err := cluster.Dir.Create(); err != nil {
			return err
		}
		file = accessFile(cluster)
	}
	if err := durable.Write(file, config); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	view.Result(map[string]string{"file": file, "context": access.Cluster, "server": access.Server}, func(w io.Writer) { fmt.Fprintln(w, file) })
	return nil
}

// accessFile returns the path of the kubeconfig in the state folder.
func accessFile(cluster *enginecmd.Cluster) string {
	return cluster.Dir.AccessFile(kubernetes.Kind.AccessFile)
}
