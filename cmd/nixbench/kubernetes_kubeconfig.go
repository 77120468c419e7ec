package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
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

func kubeconfigCommand(a *app) *cobra.Command {
	var flags kubeconfigFlags
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Fetch a kubeconfig of the cluster",
		Long:  kubeconfigLong,
		Example: `  export KUBECONFIG=$(nixbench kubeconfig) && kubectl get nodes
  nixbench kubeconfig --forward`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return runKubeconfig(a, flags) })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&flags.output, "output", "o", "", "write it to `FILE`; - is standard output")
	f.StringVar(&flags.name, "context", "", "name the context and its cluster `NAME` (default: the cluster's name)")
	f.BoolVar(&flags.forward, "forward", false, "forward the API through SSH, until Ctrl-C")
	f.IntVar(&flags.port, "port", 0, "local `PORT` for --forward (default: any that is free)")
	f.BoolVar(&flags.acceptNew, "accept-new-host-keys", false, "accept and store the keys of hosts that known_hosts does not contain")
	return cmd
}

// runKubeconfig fetches credentials for the cluster and writes them to a kubeconfig. With --forward, it then forwards a local
// port to the API.
func runKubeconfig(a *app, flags kubeconfigFlags) error {
	if flags.port != 0 && !flags.forward {
		return failure.NewUsage("--port requires --forward")
	}
	s, err := a.openNodes(fleetFlags{acceptNew: flags.acceptNew}, deploy.SelectedNodes)
	if err != nil {
		return err
	}
	defer s.Close()
	cluster, err := s.Cluster(kubernetes.Kind, "kubeconfig")
	if err != nil {
		return err
	}
	access, err := kubernetes.New(cluster).ReadAdminAccess(a.ctx)
	if err != nil {
		return err
	}
	if ends := access.Ends(); !ends.IsZero() {
		event.Sink(a.sendEvent).Note("its certificate ends on %s; then run nixbench kubeconfig again", ends.Format(time.DateOnly))
	}
	if flags.name != "" {
		access.Cluster = flags.name
	}
	if !flags.forward {
		return writeKubeconfig(a.view, s.Dir, access, flags.output)
	}
	tunnel, err := forwardAPI(a.ctx, s, cluster, access, flags.port)
	if err != nil {
		return err
	}
	defer tunnel.Close()
	if flags.output == "" {
		flags.output = tunnel.File()
	}
	if err := writeKubeconfig(a.view, s.Dir, access, flags.output); err != nil {
		return err
	}
	return tunnel.Wait(a.ctx)
}

// writeKubeconfig writes a kubeconfig to a file, and shows the path. If file is -, it writes to standard output; if file is empty,
// it writes into the state folder.
func writeKubeconfig(view *ui.View, dir state.Dir, access *kubernetes.Access, file string) error {
	config, err := access.Kubeconfig()
	if err != nil {
		return err
	}
	if file == "-" {
		view.Result(json.RawMessage(config), func(w io.Writer) { _, _ = w.Write(config) })
		return nil
	}
	if file == "" {
		if err := dir.Create(); err != nil {
			return err
		}
		file = accessFile(dir)
	}
	if err := durable.Write(file, config); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	view.Result(map[string]string{"file": file, "context": access.Cluster, "server": access.Server}, func(w io.Writer) { fmt.Fprintln(w, file) })
	return nil
}

// accessFile returns the path of the kubeconfig in the state folder.
func accessFile(dir state.Dir) string { return dir.AccessFile(kubernetes.Kind.AccessFile) }
