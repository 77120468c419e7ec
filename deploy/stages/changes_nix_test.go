package stages

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/closure"
	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/nixeval"
)

// The packages whose versions differ are those of `nix store diff-closures`, for systems that the real Nix has built.
func TestDiffIsThatOfNix(t *testing.T) {
	mini := fixture.Nixpkgs(t)
	fixture.Require(t, "nix", "nix-build", "nix-daemon")
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	build := func(settings string) string {
		out, err := exec.CommandContext(t.Context(), "nix-build", "--no-out-link", "-E", fmt.Sprintf(`
			(import %s/nixos/lib/eval-config.nix { system = "x86_64-linux"; modules = [ { system.stateVersion = "25.05"; %s } ]; }).config.system.build.toplevel
		`, mini, settings)).Output()
		if err != nil {
			t.Fatalf("nix-build: %v: %s", err, err.(*exec.ExitError).Stderr)
		}
		return strings.TrimSpace(string(out))
	}
	pkg := func(name string, lines int) string {
		return fmt.Sprintf(`builtins.toFile "%s" (toString (builtins.genList (n: n) %d))`, name, lines)
	}
	from := build(`environment.etc = { t.source = ` + pkg("tool-1.0", 10) + `; gone.source = ` + pkg("gone-3", 10) + `; x.text = "one"; };
		systemd.services.extra = { script = "echo one"; };`)
	to := build(`environment.etc = { t.source = ` + pkg("tool-1.1", 5000) + `; new.source = ` + pkg("fresh-7", 10) + `; x.text = "two"; };
		systemd.services.extra = { script = "echo two"; };`)
	started := 0
	copier := &closure.Copier{Start: func(ctx context.Context, c nixeval.Command) (io.ReadWriteCloser, error) {
		started++
		return nixeval.StartPipe(ctx, c)
	}}
	copier.Expect([]string{from})
	copier.Expect([]string{to})
	diff, err := (&diffs{copier: copier}).compare(t.Context(), "", nil, from, to)
	if err != nil || diff == nil || started != 1 {
		t.Fatal(diff, err, started)
	}
	out, err := exec.CommandContext(t.Context(), "nix", "store", "diff-closures", from, to).Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("nix store diff-closures:\n%s\npackages: %+v\nunits: %+v\n/etc: %+v", out, diff.Packages, *diff.Units, *diff.Etc)

	var want, got []string
	for line := range strings.Lines(string(out)) {
		if name, change, found := strings.Cut(line, ": "); found && strings.Contains(change, " → ") { // not a change of the size only
			want = append(want, name)
		}
	}
	for _, p := range diff.Packages {
		if !slices.Equal(p.From, p.To) {
			got = append(got, p.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 3 {
		t.Errorf("nix store diff-closures:\n%s\n%s", out, diff)
	}
	wantTexts(t, diff.Units.Changed, "extra.service")
	if diff := cmp.Diff([][]string{{"new"}, {"t", "x"}, {"gone"}}, [][]string{diff.Etc.Added, diff.Etc.Changed, diff.Etc.Removed}); diff != "" {
		t.Error(diff)
	}
}
