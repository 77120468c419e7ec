package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/state"
)

func kubeconfigCommand(a *app) *cobra.Command {
	var flags fleetFlags
	var forward bool
	var output string
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Fetch a kubeconfig of the cluster",
		Long: `Fetch the administrator's kubeconfig of a Kubernetes cluster into the state
folder. Its certificate expires within a year; then run this command again.`,
		Example: `  export KUBECONFIG=$(nixbench kubeconfig) && kubectl get nodes`,
	}
	cmd.RunE = a.withSession("", &flags, deploy.SelectedNodes, func(s *deploy.Session, _ []string) error {
		cluster, err := deploy.ClusterOf(s, kubernetes.Kind, "kubeconfig")
		if err != nil {
			return err
		}
		access, err := kubernetes.New(cluster).ReadAdminAccess(a.ctx)
		if err != nil {
			return err
		}
		if ends := access.Ends(); !ends.IsZero() {
			a.sink.Note("its certificate ends on %s; then run nixbench kubeconfig again", ends.Format(time.DateOnly))
		}
		if !forward {
			if err := s.Dir.Create(); err != nil {
				return err
			}
			return showKubeconfig(a.view, access, cmp.Or(output, accessFile(s.Dir)))
		}
		return withForwardedAPI(a.ctx, s, cluster, access, func(file string, lost <-chan struct{}) error {
			if err := showKubeconfig(a.view, access, cmp.Or(output, file)); err != nil {
				return err
			}
			select {
			case <-lost:
				return errors.New("the SSH connection that forwards the API is lost; run the command again")
			case <-a.ctx.Done(): // the user ends the command
				return nil
			}
		})
	})
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "", "write it to `FILE`; - is standard output")
	f.BoolVar(&forward, "forward", false, "forward the API through the SSH connection to a control plane, until Ctrl-C, if this machine cannot reach its address")
	f.BoolVar(&flags.acceptNew, "accept-new-host-keys", false, acceptNewHelp)
	return cmd
}

func showKubeconfig(view *ui.View, access *kubernetes.Access, file string) error {
	config, err := access.Kubeconfig()
	if err != nil {
		return err
	}
	if file == "-" {
		view.Result(json.RawMessage(config), func(w io.Writer) { _, _ = w.Write(config) })
		return nil
	}
	if err := durable.Write(file, config); err != nil { // only the current user can read the file
		return err
	}
	view.Result(map[string]string{"file": file, "context": access.Cluster, "server": access.Server}, func(w io.Writer) { fmt.Fprintln(w, file) })
	return nil
}

func accessFile(dir state.Dir) string { return dir.AccessFile(kubernetes.Kind.AccessFile) }

// withForwardedAPI forwards a local port to the API of a cluster while f runs, and sets the server in access to the local address. f
// gets the path of a kubeconfig with access, which is removed at the end. The kubeconfig of the state folder cannot be used for that,
// because it remains. The channel lost is closed when the SSH connection to the control plane ends.
func withForwardedAPI(ctx context.Context, s *deploy.Session, cluster engine.Cluster, access *kubernetes.Access, f func(file string, lost <-chan struct{}) error) error {
	u, err := url.Parse(access.Server)
	if err != nil {
		return fmt.Errorf("the cluster's own kubeconfig: %w", err)
	}
	conn, err := connectControlPlane(ctx, s, kubernetes.New(cluster))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	conn.Forward(listener, func(ctx context.Context) (net.Conn, error) { return conn.Dial(ctx, "tcp", u.Host) })
	access.ServerName, access.Server = u.Hostname(), "https://"+listener.Addr().String()
	file := filepath.Join(s.Dir.ForwardFolder(), fmt.Sprintf("kubeconfig-%d", os.Getpid()))
	defer os.Remove(file) // destroy removes what a killed process leaves
	if err := writeAccess(s.Dir, file, access); err != nil {
		return err
	}
	return f(file, conn.Context().Done())
}

// connectControlPlane returns a connection to the first control plane that answers.
func connectControlPlane(ctx context.Context, s *deploy.Session, controlPlanes *kubernetes.Engine) (*remote.Conn, error) {
	var errs []error
	for _, n := range s.Hive.Nodes {
		if !controlPlanes.IsControlPlane(n.Name) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		host, err := s.Fleet.Host(limited, n)
		if err == nil {
			var conn *remote.Conn
			if conn, err = host.Conn(limited); err == nil {
				return conn, nil
			}
		}
		errs = append(errs, err)
	}
	return nil, cmp.Or(errors.Join(errs...), errors.New("the API cannot be forwarded: the hive has no control plane"))
}

func kubectlCommand(a *app) *cobra.Command {
	var acceptNew, forward bool
	cmd := &cobra.Command{
		Use:   "kubectl [--] ARGUMENT…",
		Short: "Run kubectl in the cluster",
		Long: `Run the kubectl of this machine with the administrator's kubeconfig of the
cluster, which nixbench fetches if necessary. The arguments are those of
kubectl; write -- before them if they begin with a flag. The exit code is that
of kubectl.

If the API accepts no connection from this machine within 3 s, it is forwarded
through the SSH connection to a control plane while kubectl runs.`,
		Example: `  nixbench kubectl -- -n kube-system get pods`,
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.RunE = a.withView(func(args []string) error {
		if a.json {
			return failure.NewUsage("kubectl: --json is not supported; use nixbench kubectl -- ARGUMENT… -o json")
		}
		path, err := exec.LookPath("kubectl")
		if err != nil {
			return failure.WithHint(errors.New("kubectl is not installed on this machine"),
				"install it, or run it on a control plane: nixbench ssh NODE -- kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes")
		}
		return a.inSession(fleetFlags{acceptNew: acceptNew}, onNodes("", deploy.SelectedNodes), func(s *deploy.Session) error {
			cluster, err := deploy.ClusterOf(s, kubernetes.Kind, "kubectl")
			if err != nil {
				return err
			}
			access, err := ensureAccess(a.ctx, s.Dir, cluster, time.Now())
			if err != nil {
				return err
			}
			if forward || !isReachable(a.ctx, access) {
				return withForwardedAPI(a.ctx, s, cluster, access, func(file string, _ <-chan struct{}) error {
					return execKubectl(a, path, file, args)
				})
			}
			return execKubectl(a, path, accessFile(s.Dir), args)
		})
	})
	f := cmd.Flags()
	f.SetInterspersed(false) // leave flags after the first argument to kubectl
	f.BoolVar(&forward, "forward", false, "forward the API through SSH")
	f.BoolVar(&acceptNew, "accept-new-host-keys", false, acceptNewHelp)
	return cmd
}

// ensureAccess returns the credentials in the kubeconfig of the state folder. If there is none, or it has expired, it fetches another one.
func ensureAccess(ctx context.Context, dir state.Dir, cluster engine.Cluster, now time.Time) (*kubernetes.Access, error) {
	if data, err := durable.Read(accessFile(dir), durable.KeySize); err == nil {
		if a := kubernetes.ParseKubeconfig("", data); a != nil && (a.Ends().IsZero() || now.Before(a.Ends())) {
			return a, nil
		}
	}
	access, err := kubernetes.New(cluster).ReadAdminAccess(ctx)
	if err != nil {
		return nil, err
	}
	return access, writeAccess(dir, accessFile(dir), access)
}

// writeAccess writes a kubeconfig into the state folder.
func writeAccess(dir state.Dir, file string, access *kubernetes.Access) error {
	if err := dir.Create(); err != nil {
		return err
	}
	config, err := access.Kubeconfig()
	if err != nil {
		return err
	}
	return dir.Write(file, config)
}

func isReachable(ctx context.Context, access *kubernetes.Access) bool {
	u, err := url.Parse(access.Server)
	if err != nil {
		return false
	}
	dialer := net.Dialer{Timeout: 3 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// execKubectl runs kubectl on the terminal. If it fails, the error is a [commandError] with the exit code that a shell would report.
func execKubectl(a *app, path, kubeconfig string, args []string) error {
	cmd := exec.CommandContext(a.ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var err error
	a.lendTerminal(func() { err = cmd.Run() })
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return err
	}
	code := exit.ExitCode()
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return &commandError{text: fmt.Sprintf("kubectl: exit status %d", code), code: code, shown: true}
}
