package packages

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const hash = "/nix/store/0c0fnw4wm2r4jlwv6rxyrbkh1g5aq8kx-"

func TestParse(t *testing.T) {
	for path, want := range map[string][2]string{
		"curl-8.10.1":                     {"curl", "8.10.1"},
		"curl-8.10.1-bin":                 {"curl", "8.10.1"},
		"bash-interactive-5.2p37":         {"bash-interactive", "5.2p37"},
		"python3.12-six-1.16":             {"python3.12-six", "1.16"},
		"unit-nginx.service":              {"unit-nginx.service", ""},
		"etc":                             {"etc", ""},
		"nixos-system-web-25.05pre-git":   {"nixos-system-web", "25.05pre-git"},
		"gcc-14.2.1.20250322-lib":         {"gcc", "14.2.1.20250322"},
		"system-path":                     {"system-path", ""},
		"bin":                             {"bin", ""},
		"linux-6.12-modules":              {"linux", "6.12-modules"},
		"1password":                       {"1password", ""},
		"extra-utils-2.40-with-man-2-man": {"extra-utils", "2.40-with-man-2"},
	} {
		if name, version := Parse(hash + path); name != want[0] || version != want[1] {
			t.Errorf("%s: %q %q, want %q", path, name, version, want)
		}
	}
	if name, version := Parse("/nix/store/x"); name != "x" || version != "" {
		t.Errorf("%q %q", name, version)
	}
}

func TestDiff(t *testing.T) {
	from := map[string]int64{
		hash + "curl-8.9": 100, hash + "curl-8.9-bin": 50, hash + "etc": 10, hash + "etc-2": 5, hash + "gone-1": 7, hash + "same-1": 9,
		hash + "rebuilt-1": 10_000, hash + "firmware": 9_000, hash + "unit-script-a": 5, hash + "two-1": 1,
	}
	to := map[string]int64{
		hash + "curl-8.10": 2000, hash + "etc": 11, hash + "etc-2": 5, hash + "hello-2.12": 30, hash + "same-1": 10,
		hash + "rebuilt-1": 20_000, hash + "two-1": 1, hash + "two-2": 1,
	}
	want := []Change{
		{"curl", []string{"8.9"}, []string{"8.10"}, 1850},
		{"firmware", []string{""}, []string{}, -9_000},
		{"gone", []string{"1"}, []string{}, -7},
		{"hello", []string{}, []string{"2.12"}, 30},
		{"rebuilt", []string{"1"}, []string{"1"}, 10_000},
		{"two", []string{"1"}, []string{"1", "2"}, 1},
	}
	got := Diff(from, to)
	if diff := cmp.Diff(want, got.Packages); diff != "" {
		t.Error(diff)
	}
	if got.Bytes != 22_058-19_187 {
		t.Errorf("the closure grows by %d bytes", got.Bytes)
	}
	if got := Diff(from, from); got.Packages == nil || len(got.Packages) != 0 || got.Bytes != 0 {
		t.Error(got)
	}
}
