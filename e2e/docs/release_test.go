package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestRelease builds a release for one platform from two clones in different folders: the files have the same bytes.
func TestRelease(t *testing.T) {
	if os.Getenv("NIXBENCH_E2E") != "1" {
		t.Skip("needs NIXBENCH_E2E=1: it compiles the program twice")
	}
	build := func(folder string) []byte {
		script := `git clone -q ../.. "$0" && cd "$0" && git config user.name t && git config user.email t@example.org
			sed -i 's/^## 0.1.0.*/## 0.1.0, 2026-01-01/' CHANGELOG.md && sed -i 's/version ? "0.1.0-dev"/version ? "0.1.0"/' package.nix
			GIT_COMMITTER_DATE='2026-01-01T00:00:00Z' git commit -qam release --date 2026-01-01T00:00:00Z && git tag v0.1.0 && scripts/release v0.1.0 linux-amd64 && cat dist/v0.1.0/SHA256SUMS && cd dist/v0.1.0 && sha256sum --quiet -c SHA256SUMS`
		out, err := exec.CommandContext(t.Context(), "bash", "-ec", script, folder).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if _, err := os.Stat(filepath.Join(folder, "dist/v0.1.0/nixbench-v0.1.0-linux-amd64.tar.gz")); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if first, second := build(filepath.Join(t.TempDir(), "one")), build(filepath.Join(t.TempDir(), "another")); !bytes.Equal(first, second) {
		t.Errorf("the files differ:\n%s%s", first, second)
	}
}
