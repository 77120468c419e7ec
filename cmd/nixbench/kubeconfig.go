package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

const kubeconfigLong = `Fetch the administrator's kubeconfig of a Kubernetes cluster. Its context has the name of
the cluster. The file is written into the state folder, or to -o FILE, and only the current
user can read it: with this file, a client may do everything in the cluster.

Its certificate expires a year after a control plane issued it, and control planes renew
their certificates long before that. Run this command again to get a file with a new
certificate; nixbench status reports when the file in the state folder needs it.

--merge adds the context to your own kubeconfig, with your kubectl. The current context does
not change. An entry with the same name is replaced if it belongs to the same cluster.
Otherwise nothing is changed; --context uses another name. The previous file is kept
beside it, with .bak added to its name.

If the API's address cannot be reached from this machine, --forward forwards the API through
the SSH connection to a control plane, as long as the command runs. Without -o,
its kubeconfig is a file of its own, which is removed at the end.`

type kubeconfigFlags struct {
	acceptNew      bool
	output, name   string
	merge, forward bool
	port           int
}

func (a *app) kubeconfigCommand() *cobra.Command {
	var flags kubeconfigFlags
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Fetch a kubeconfig of the cluster",
		Long:  kubeconfigLong,
		Example: `  export KUBECONFIG=$(nixbench kubeconfig) && kubectl get nodes
  nixbench kubeconfig --merge && kubectl --context bench get pods -A
  nixbench kubeconfig --forward`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.withView(func([]string) error { return a.kubeconfig(flags) })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&flags.output, "output", "o", "", "write it to `FILE`; - is standard output")
	f.BoolVar(&flags.merge, "merge", false, "merge it into $KUBECONFIG, or ~/.kube/config")
	f.StringVar(&flags.name, "context", "", "name the context and its cluster `NAME` (default: the cluster's name)")
	f.BoolVar(&flags.forward, "forward", false, "forward the API through SSH, until Ctrl-C")
	f.IntVar(&flags.port, "port", 0, "local `PORT` for --forward (default: any that is free)")
	f.BoolVar(&flags.acceptNew, "accept-new-host-keys", false, "accept and store the keys of hosts that known_hosts does not contain")
	cmd.MarkFlagsMutuallyExclusive("output", "merge")
	return cmd
}

func (a *app) kubeconfig(flags kubeconfigFlags) error {
	if flags.port != 0 && !flags.forward {
		return newUsageError("--port requires --forward")
	}
	e, hive, _, err := a.loadNodes(nil)
	if err != nil {
		return err
	}
	conns := a.newFleet(hive, fleetFlags{acceptNew: flags.acceptNew}, nil)
	defer conns.Close()
	cluster, found, err := findEngine[*kubernetes.Engine](hive, conns)
	if err != nil {
		return err
	}
	if !found {
		return newUsageError("kubeconfig: no node of the hive is a member of a Kubernetes cluster; they import modules/kubernetes")
	}
	access, err := cluster.ReadAdminAccess(a.ctx)
	if err != nil {
		return err
	}
	if ends := access.Ends(); !ends.IsZero() {
		a.sendEvent(event.Event{Kind: event.Message, Level: "note", Time: time.Now(), Text: "its certificate ends on " + ends.Format(time.DateOnly) + "; then run nixbench kubeconfig again"})
	}
	if flags.name != "" {
		access.Cluster = flags.name
	}
	var done <-chan struct{}
	if flags.forward {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(flags.port)))
		if err != nil {
			return newUsageError("--port: %w", err)
		}
		if flags.output == "" {
			folder, err := a.makeForwardFolder(e, hive)
			if err != nil {
				return err
			}
			defer os.RemoveAll(folder)
			flags.output = filepath.Join(folder, "kubeconfig")
		}
		if done, err = a.forwardAPI(conns, hive, cluster, access, listener); err != nil {
			listener.Close()
			return err
		}
	}
	if err := a.writeKubeconfig(e, hive, access, flags); err != nil || done == nil {
		return err
	}
	select {
	case <-done:
		return errors.New("the SSH connection that forwards the API is lost; run the command again")
	case <-a.ctx.Done():
		return nil // Ctrl-C is the normal end
	}
}

// makeForwardFolder creates a folder for the kubeconfig of this --forward. It must not be the file that remains
// when the command has ended.
func (a *app) makeForwardFolder(e *nixeval.Evaluator, hive *nixeval.Hive) (string, error) {
	dir, err := a.locateState(e, hive)
	if err != nil {
		return "", err
	}
	if err := dir.Create(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir.ForwardFolder(), 0o700); err != nil {
		return "", &state.FolderError{Dir: dir, Err: err}
	}
	removeAbandoned(dir.ForwardFolder())
	folder, err := os.MkdirTemp(dir.ForwardFolder(), fmt.Sprintf("%d-", os.Getpid()))
	if err != nil {
		return "", &state.FolderError{Dir: dir, Err: err}
	}
	return folder, nil
}

// removeAbandoned removes the folders of processes that were killed. Their names begin with the process's number.
func removeAbandoned(dir string) {
	folders, _ := filepath.Glob(filepath.Join(dir, "*-*"))
	for _, folder := range folders {
		number, _, _ := strings.Cut(filepath.Base(folder), "-")
		if pid, err := strconv.Atoi(number); err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(folder) // destroy removes what is left
		}
	}
}

// forwardAPI forwards the listener to the API through the first control plane that answers, and
// sets access.Server to the listener's address. The returned channel is closed when the SSH
// connection to the control plane ends.
func (a *app) forwardAPI(conns *fleet.Fleet, hive *nixeval.Hive, cluster *kubernetes.Engine, access *kubernetes.Access, listener net.Listener) (<-chan struct{}, error) {
	u, err := url.Parse(access.Server)
	if err != nil {
		return nil, fmt.Errorf("the cluster's own kubeconfig: %w", err)
	}
	var errs []error
	for _, n := range hive.Nodes {
		if !cluster.IsControlPlane(n.Name) {
			continue
		}
		ctx, cancel := context.WithTimeout(a.ctx, 30*time.Second)
		host, err := conns.Host(ctx, n)
		if err == nil {
			conn, dialErr := host.Conn(ctx)
			if err = dialErr; err == nil {
				cancel()
				conn.ForwardTCP(listener, u.Host)
				access.ServerName = u.Hostname()
				access.Server = "https://" + listener.Addr().String()
				return conn.Done(), nil
			}
		}
		cancel()
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (a *app) writeKubeconfig(e *nixeval.Evaluator, hive *nixeval.Hive, access *kubernetes.Access, flags kubeconfigFlags) error {
	config, err := access.Kubeconfig()
	if err != nil {
		return err
	}
	if flags.output == "-" {
		a.view.Result(json.RawMessage(config), func(w io.Writer) { _, _ = w.Write(config) })
		return nil
	}
	dir, err := a.locateState(e, hive)
	if err != nil {
		return err
	}
	file := flags.output
	if file == "" {
		if err := dir.Create(); err != nil {
			return err
		}
		file = dir.Kubeconfig()
	}
	if err := durable.Write(file, config); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if flags.merge {
		if file, err = mergeKubeconfig(a.ctx, file, access); err != nil {
			return err
		}
		a.sendEvent(event.Event{Kind: event.Message, Level: "note", Time: time.Now(), Text: "use it with: kubectl --context " + access.Cluster})
	}
	a.view.Result(map[string]string{"file": file, "context": access.Cluster, "server": access.Server}, func(w io.Writer) { fmt.Fprintln(w, file) })
	return nil
}

// describeKubeconfigExpiry returns a note if the certificate of the kubeconfig in the state folder
// ends within renewalNotice. Otherwise it returns an empty string.
func (a *app) describeKubeconfigExpiry(now time.Time) string {
	data, err := durable.Read(a.dir.Kubeconfig(), durable.KeySize)
	if err != nil {
		return "" // most clusters have no kubeconfig in the state folder
	}
	access := kubernetes.ParseKubeconfig(data)
	if access == nil || access.Ends().IsZero() || access.Ends().Sub(now) > renewalNotice {
		return ""
	}
	return fmt.Sprintf("kubeconfig: its certificate ends on %s; nixbench kubeconfig writes another", access.Ends().Format(time.DateOnly))
}
