package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
)

// tunnel forwards a local port to the API of a cluster, through the SSH connection to a control plane. In its folder is a
// kubeconfig with the address of the local port.
type tunnel struct {
	listener net.Listener
	folder   string
	lost     <-chan struct{} // closed when the SSH connection ends
}

// forwardAPI forwards a local port to the API, through the first control plane that answers. It sets the server in access to the
// local address. If port is 0, it uses any free port.
func forwardAPI(ctx context.Context, s *deploy.Session, cluster engine.Cluster, access *kubernetes.Access, port int) (*tunnel, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, failure.NewUsage("--port: %w", err)
	}
	t := &tunnel{listener: listener}
	if t.folder, err = makeForwardFolder(s.Dir); err == nil {
		t.lost, err = connectTunnel(ctx, s, cluster, access, listener)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// File returns the path of the tunnel's kubeconfig. Close removes this file.
func (t *tunnel) File() string { return filepath.Join(t.folder, "kubeconfig") }

// Wait waits until the user interrupts nixbench, or until the SSH connection is lost. Only a lost connection is an error.
func (t *tunnel) Wait(ctx context.Context) error {
	select {
	case <-t.lost:
		return errors.New("the SSH connection that forwards the API is lost; run the command again")
	case <-ctx.Done():
		return nil
	}
}

// Close ends the forwarding and removes the tunnel's folder.
func (t *tunnel) Close() {
	t.listener.Close()
	if t.folder != "" {
		_ = os.RemoveAll(t.folder) // an error is ignored: the next tunnel removes what is left (removeAbandoned)
	}
}

// connectTunnel connects the listener with the API through the first control plane that answers. The returned channel
// is closed when the SSH connection to the control plane ends.
func connectTunnel(ctx context.Context, s *deploy.Session, cluster engine.Cluster, access *kubernetes.Access, listener net.Listener) (<-chan struct{}, error) {
	u, err := url.Parse(access.Server)
	if err != nil {
		return nil, fmt.Errorf("the cluster's own kubeconfig: %w", err)
	}
	controlPlanes := kubernetes.New(cluster)
	var errs []error
	for _, n := range s.Hive.Nodes {
		if !controlPlanes.IsControlPlane(n.Name) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		host, err := s.Fleet.Host(ctx, n)
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
	if len(errs) == 0 {
		errs = append(errs, errors.New("the API cannot be forwarded: the hive has no control plane"))
	}
	return nil, errors.Join(errs...)
}

// makeForwardFolder creates a folder for the kubeconfig of one tunnel. The kubeconfig of the state folder cannot be used for that,
// because it remains after the end of the command.
func makeForwardFolder(dir state.Dir) (string, error) {
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

// removeAbandoned removes the folders that killed processes of nixbench have left. The name of a folder begins with the id of its
// process.
func removeAbandoned(dir string) {
	folders, _ := filepath.Glob(filepath.Join(dir, "*-*"))
	for _, folder := range folders {
		number, _, _ := strings.Cut(filepath.Base(folder), "-")
		if pid, err := strconv.Atoi(number); err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(folder) // destroy removes what is left
		}
	}
}
