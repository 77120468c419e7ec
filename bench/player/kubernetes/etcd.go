package kubernetes

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// compact removes the old revisions of all objects from etcd, so that the revisions of one trial do not slow down the next trial.
// The API server itself does this every five minutes, but keeps the revisions of the last five minutes. The files of etcd keep
// their size; etcd reuses the space.
func (p *Player) compact(ctx context.Context) error {
	status, err := p.runEtcdctl(ctx, "endpoint", "status", "--write-out=json")
	if err != nil {
		return fmt.Errorf("kubernetes: read the revision of etcd: %w", err)
	}
	revision := gjson.GetBytes(status, "0.Status.header.revision").Int()
	if revision <= 0 {
		return fmt.Errorf("kubernetes: read the revision of etcd: etcdctl printed %.200q", status)
	}
	// No error if the API server has compacted etcd meanwhile.
	if _, err = p.runEtcdctl(ctx, "compaction", "--physical", strconv.FormatInt(revision, 10)); err != nil && !strings.Contains(err.Error(), "required revision has been compacted") {
		return fmt.Errorf("kubernetes: compact etcd: %w", err)
	}
	return nil
}

// runEtcdctl runs etcdctl on the first control plane, for the etcd member on that node.
func (p *Player) runEtcdctl(ctx context.Context, args ...string) ([]byte, error) {
	const pki = "/etc/kubernetes/pki/etcd/"
	return p.RunOn(ctx, p.Place().Scheduler, nil, append([]string{"etcdctl", "--endpoints=https://127.0.0.1:2379", "--command-timeout=50s",
		"--cacert=" + pki + "ca.crt", "--cert=" + pki + "server.crt", "--key=" + pki + "server.key"}, args...)...)
}
