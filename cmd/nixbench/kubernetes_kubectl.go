package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
)

type kubectlFlags struct{ acceptNew, forward bool }

func kubectlCommand(a *app) *cobra.Command {
	var flags kubectlFlags
	cmd := &cobra.Command{
		Use:   "kubectl [--] ARGUMENT…",
		Short: "Run kubectl in the cluster",
		Long: `Run the kubectl of this machine with the administrator's kubeconfig of the
cluster, which nixbench fetches if necessary. The arguments are those of
kubectl; write -- before them if they begin with a flag. The exit code is that
of kubectl.

If the API accepts no connection from this machine within 3 s, it is forwarded
through the SSH connection to a control plane while kubectl runs.`,
		Example: `  nixbench kubectl get nodes
  nixbench kubectl -- -n kube-system get pods
  nixbench kubectl --forward apply -f deployment.yaml`,
		Args: cobra.MinimumNArgs(1),
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
		return a.inSession(fleetFlags{acceptNew: flags.acceptNew}, onNodes("", deploy.SelectedNodes), func(s *deploy.Session) error {
			cluster, err := deploy.ClusterOf(s, kubernetes.Kind, "kubectl")
			if err != nil {
				return err
			}
			access, err := ensureAccess(a.ctx, s.Dir, cluster, time.Now())
			if err != nil {
				return err
			}
			if flags.forward || !isReachable(a.ctx, access) {
				return withForwardedAPI(a.ctx, s, cluster, access, func(file string, _ <-chan struct{}) error {
					return execKubectl(a, path, file, args)
				})
			}
			return execKubectl(a, path, accessFile(s.Dir), args)
		})
	})
	f := cmd.Flags()
	f.SetInterspersed(false) // leave flags after the first argument to kubectl
	f.BoolVar(&flags.forward, "forward", false, "forward the API through SSH")
	f.BoolVar(&flags.acceptNew, "accept-new-host-keys", false, acceptNewHelp)
	return cmd
}

// ensureAccess returns the credentials in the kubeconfig of the state folder. If there is no kubeconfig, or its certificate has
// expired, it first fetches new credentials from a control plane.
func ensureAccess(ctx context.Context, dir state.Dir, cluster engine.Cluster, now time.Time) (*kubernetes.Access, error) {
	if data, err := durable.Read(accessFile(dir), durable.KeySize); err == nil {
		if a := kubernetes.ParseKubeconfig(data); a != nil && (a.Ends().IsZero() || now.Before(a.Ends())) {
			return a, nil
		}
	}
	access, err := kubernetes.New(cluster).ReadAdminAccess(ctx)
	if err != nil {
		return nil, err
	}
	if err := dir.Create(); err != nil {
		return nil, err
	}
	config, err := access.Kubeconfig()
	if err != nil {
		return nil, err
	}
	return access, dir.Write(accessFile(dir), config)
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

// execKubectl runs kubectl on the terminal of nixbench and waits until it ends. If kubectl fails, the error is a [programError]
// with the exit code that a shell would report.
func execKubectl(a *app, path, kubeconfig string, args []string) error {
	cmd := exec.CommandContext(a.ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var err error
	a.lendTerminal(func() { err = cmd.Run() })
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	code := exit.ExitCode()
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return &commandError{text: fmt.Sprintf("kubectl: exit status %d", code), code: code, shown: true}
}
