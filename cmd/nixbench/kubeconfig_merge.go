package main

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

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
)

// mergeKubeconfig puts what is in the file ours into the user's own kubeconfig, and says where
// that is. kubectl does it, which knows what may be in such a file; it is written once.
func mergeKubeconfig(ctx context.Context, ours string, access *kubernetes.Access) (string, error) {
	into, err := usersKubeconfig()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	theirs, err := viewConfig(ctx, []string{into}, "-o", "json")
	if errors.Is(err, exec.ErrNotFound) {
		return "", &hinted{errors.New("--merge: kubectl is not installed here"), "without it: export KUBECONFIG=" + ours}
	}
	if err != nil {
		return "", err
	}
	if why := clash(theirs, access); why != "" {
		return "", &hinted{usagef("--merge: %s has %s; nothing was changed", into, why),
			fmt.Sprintf("--context NAME gives ours another name; an old one that is gone is removed by: kubectl config delete-cluster %s; kubectl config delete-context %[1]s", access.Cluster)}
	}
	// What several files say is taken from the first: the context that is in use, then ours.
	files := []string{ours, into}
	if current := gjson.GetBytes(theirs, "current-context").String(); current != "" {
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
	merged, err := viewConfig(ctx, files)
	if err != nil {
		return "", err
	}
	return into, replaceConfig(into, merged)
}

// usersKubeconfig is the file that kubectl changes, too.
func usersKubeconfig() (string, error) {
	for _, file := range filepath.SplitList(os.Getenv("KUBECONFIG")) {
		if file != "" {
			return file, nil
		}
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".kube", "config"), err
}

func viewConfig(ctx context.Context, files []string, args ...string) ([]byte, error) {
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

// clash says what entry of a kubeconfig, of those that ours would replace, is somebody else's.
// One and the same cluster has the same authority, wherever it is reached.
func clash(theirs []byte, access *kubernetes.Access) string {
	entry := func(kind, name string) (found gjson.Result) {
		for _, e := range gjson.GetBytes(theirs, kind).Array() {
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
	for _, c := range gjson.GetBytes(theirs, "contexts").Array() {
		if c.Get("context.user").String() == user && c.Get("context.cluster").String() != name {
			return fmt.Sprintf("a user %s of another context, %s", user, c.Get("name").String())
		}
	}
	return ""
}

// authorityOf is a cluster's certificate authority in base64.
func authorityOf(cluster gjson.Result) string {
	if file := cluster.Get("certificate-authority").String(); file != "" {
		data, _ := durable.Read(file, durable.KeySize) // one that cannot be read is not ours
		return base64.StdEncoding.EncodeToString(data)
	}
	return cluster.Get("certificate-authority-data").String()
}

// replaceConfig writes a kubeconfig where it is, also behind a link, and keeps the one from before.
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
		return fmt.Errorf("--merge: %s is a link to a file that is not there: %w", file, err)
	default:
		real = file
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
	}
	return durable.Write(real, data)
}
