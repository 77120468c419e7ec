package nixeval

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSet(t *testing.T) {
	for _, tc := range []struct {
		arg  string
		want Set
		err  string // part of the message
	}{
		{arg: "roles.worker.count=5", want: Set{Path: []string{"roles", "worker", "count"}, Raw: "5", IsJSON: true}},
		{arg: "cluster.network.cidr=10.0.0.0/24", want: Set{Path: []string{"cluster", "network", "cidr"}, Raw: "10.0.0.0/24"}},
		{arg: `roles."gpu.large".count=2`, want: Set{Path: []string{"roles", "gpu.large", "count"}, Raw: "2", IsJSON: true}},
		{arg: `roles."a\"b".disk=1G`, want: Set{Path: []string{"roles", `a"b`, "disk"}, Raw: "1G"}},
		{arg: "roles.w.image=", want: Set{Path: []string{"roles", "w", "image"}}},
		{arg: "roles.w.image=a=b", want: Set{Path: []string{"roles", "w", "image"}, Raw: "a=b"}},
		{arg: `roles.w.tags=["a","b"]`, want: Set{Path: []string{"roles", "w", "tags"}, Raw: `["a","b"]`, IsJSON: true}},
		{arg: "scheduler=slurm", want: Set{Path: []string{"cluster", "scheduler"}, Raw: "slurm"}},
		{arg: "scheduler.x=slurm", err: "only paths below roles and cluster"},
		{arg: "", err: "expected an attribute name"},
		{arg: "roles", err: `expected = and a value after the path, not ""`},
		{arg: "roles.=1", err: "expected an attribute name"},
		{arg: "roles..count=1", err: "expected an attribute name"},
		{arg: `roles."open=1`, err: "expected an attribute name"},
		{arg: "roles.worker count=1", err: `expected = and a value after the path, not " count=1"`},
		{arg: "roles=1", err: "only paths below roles and cluster"},
		{arg: "meta.name=x", err: "only paths below roles and cluster"},
		{arg: "roles.w.disk=a\x00b", err: "NUL"},
	} {
		got, err := ParseSet(tc.arg)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: error %v, want one with %q", tc.arg, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tc.arg, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%q: %s", tc.arg, diff)
		}
	}
}

// For any argument, parsing ends, and Nix can evaluate what it accepts.
func FuzzParseSet(f *testing.F) {
	for _, s := range []string{"roles.w.count=1", `roles."a.b"=x`, "cluster=", `roles."\`, "roles.w.x=\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		s, err := ParseSet(arg)
		if err != nil {
			return
		}
		if len(s.Path) < 2 || !strings.HasSuffix(arg, "="+s.Raw) {
			t.Fatalf("%q gave %+v", arg, s)
		}
		if strings.Contains(s.Raw, "\x00") || slices.ContainsFunc(s.Path, func(part string) bool { return strings.Contains(part, "\x00") }) {
			t.Fatalf("%q has a NUL, which Nix cannot represent", arg)
		}
	})
}
