package kubernetescmd

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/enginecmd"
	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/failure"
)

// mergeKubeconfig merges newFile into the user's kubeconfig, and returns the path of the user's
// kubeconfig. kubectl merges the files, because it supports all features of kubeconfigs. The user's
// kubeconfig is replaced atomically.
func mergeKubeconfig(ctx context.Context, newFile string, access *kubernetes.Access) (string, error) {
	target, err := userKubeconfigPath()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	existing, err := readConfigs(ctx, []string{target}, "-o", "json")
	if errors.Is(err, exec.ErrNotFound) {
		return "", failure.WithHint(errors.New("--merge: kubectl is not installed on this machine"), "without it: export KUBECONFIG="+newFile)
	}
	if err != nil {
		return "", err
	}
	if why := findConflict(existing, access); why != "" {
		return "", failure.WithHint(enginecmd.UsageError("--merge: %s has %s; nothing was changed", target, why),
			fmt.Sprintf("--context NAME uses another name; to remove an entry of a cluster that no longer exists: kubectl config delete-cluster %s; kubectl config delete-context %[1]s", access.Cluster))
	}
	// If several files set the same field, kubectl uses the value of the first file. So the order
	// is: a file with the user's current context, newFile, the user's kubeconfig.
	files := []string{newFile, target}
	if current := gjson.GetBytes(existing, "current-context").String(); current != "" {
		dir, err := os.MkdirTemp("", "nixbench-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		text, err := json.Marshal(map[string]string{"apiVersion": "v1", "kind": "Config", "current-context": current})
		if err != nil {
			return "", err
		}
		in := filepath.Join(dir, "current-context")
		if err := os.WriteFile(in, text, 0o600); err != nil {
			return "", err
		}
		files = append([]string{in}, files...)
	}
	merged, err := readConfigs(ctx, files)
	if err != nil {
		return "", err
	}
	return target, replaceConfig(target, merged)
}

// userKubeconfigPath returns the path of the user's kubeconfig: the first file in $KUBECONFIG, or
// ~/.kube/config.
func userKubeconfigPath() (string, error) {
	for _, file := range filepath.SplitList(os.Getenv("KUBECONFIG")) {
		if file != "" {
			return file, nil
		}
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".kube", "config"), err
}

// readConfigs runs `kubectl config view --raw` on the files and returns its output.
func readConfigs(ctx context.Context, files []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "kubectl", append([]string{"config", "view", "--raw"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+strings.Join(files, string(os.PathListSeparator)))
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return nil, fmt.Errorf("--merge: kubectl config view: %w", err)
	}
	return out, nil
}

// findConflict describes an entry of the user's kubeconfig that belongs to another cluster and that
// the merge would replace. If no entry is in conflict, it returns an empty string. Two entries
// belong to the same cluster if they have the same certificate authority, even if their addresses
// differ.
func findConflict(existing []byte, access *kubernetes.Access) string {
	entry := func(kind, name string) (found gjson.Result) {
		for _, e := range gjson.GetBytes(existing, kind).Array() {
			if e.Get("name").String() == name {
				return e
			}
		}
		return found
	}
	name, user := access.Cluster, access.User()
	cluster := entry("clusters", name)
	if cluster.Exists() && authorityOf(cluster.Get("cluster")) != access.Authority() {
		return fmt.Sprintf("another cluster %s, at %s", name, cluster.Get("cluster.server").String())
	}
	if c := entry("contexts", name); c.Exists() && c.Get("context.cluster").String() != name {
		return fmt.Sprintf("a context %s of another cluster, %s", name, c.Get("context.cluster").String())
	}
	for _, c := range gjson.GetBytes(existing, "contexts").Array() {
		if c.Get("context.user").String() == user && c.Get("context.cluster").String() != name {
			return fmt.Sprintf("a user %s of another context, %s", user, c.Get("name").String())
		}
	}
	return ""
}

// authorityOf returns the certificate authority of a kubeconfig's cluster entry in base64.
func authorityOf(cluster gjson.Result) string {
	if file := cluster.Get("certificate-authority").String(); file != "" {
		data, _ := durable.Read(file, durable.KeySize) // an unreadable file counts as another authority
		return base64.StdEncoding.EncodeToString(data)
	}
	return cluster.Get("certificate-authority-data").String()
}

// replaceConfig replaces the content of a kubeconfig by data. It first copies the previous content to a
// backup, whose name is the kubeconfig's name with the suffix .bak. If file is a symbolic link, the link
// stays, and replaceConfig replaces and backs up the link's target.
func replaceConfig(file string, data []byte) error {
	real, err := filepath.EvalSymlinks(file)
	switch _, linkErr := os.Lstat(file); {
	case err == nil:
		before, err := durable.Read(real, durable.KeySize)
		if err != nil {
			return err
		}
		if err := durable.Write(real+".bak", before); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case linkErr == nil:
		return fmt.Errorf("--merge: %s is a link to a missing file: %w", file, err)
	default:
		real = file
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
	}
	return durable.Write(real, data)
}
