package kubernetes

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// etcdctl is what etcdctl 3.6 prints.
const (
	etcdStatus    = `[{"Endpoint":"https://127.0.0.1:2379","Status":{"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437,"revision":812,"raft_term":2},"version":"3.6.5"}}]` + "\n"
	etcdCompacted = `{"level":"warn"} Error: etcdserver: mvcc: required revision has been compacted`
)

// Clean compacts etcd at its revision after the objects are deleted, on the first control plane.
func TestCompact(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(n int) (string, error)
		want   string // empty: no error
	}{
		"usual": {func(n int) (string, error) { return []string{etcdStatus, "compacted revision 812\n"}[n-1], nil }, ""},
		"already compacted": {func(n int) (string, error) {
			return []string{etcdStatus, ""}[n-1], []error{nil, errors.New(etcdCompacted)}[n-1]
		}, ""},
		"no etcd":   {func(int) (string, error) { return "", errors.New("connection refused") }, "kubernetes: read the revision of etcd: connection refused"},
		"garbage":   {func(int) (string, error) { return "[]", nil }, `kubernetes: read the revision of etcd: etcdctl printed "[]"`},
		"no answer": {func(n int) (string, error) { return etcdStatus, []error{nil, errors.New("deadline exceeded")}[n-1] }, "kubernetes: compact etcd: deadline exceeded"},
	} {
		f := newFake(t)
		f.answer["etcdctl"] = c.answer
		err := f.player(Options{}).Clean(t.Context())
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v", name, err)
		}
		deleted := slices.IndexFunc(f.calls, func(call string) bool { return strings.Contains(call, " delete namespace ") })
		compacted := slices.IndexFunc(f.calls, func(call string) bool {
			return strings.HasPrefix(call, "cp-1: etcdctl ") && strings.HasSuffix(call, " compaction --physical 812")
		})
		if read := c.want == "" || strings.Contains(c.want, "compact etcd"); read != (compacted > deleted) {
			t.Errorf("%s: %q", name, f.calls)
		}
	}
}
