package flake

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The committed flake.lock locks the input of flake.nix. With another branch in flake.nix, Nix would lock the input
// again on each user's computer, and no two users would have the same nixpkgs.
func TestLock(t *testing.T) {
	root := "../.."
	text, err := os.ReadFile(filepath.Join(root, "flake.lock"))
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Version int
		Nodes   map[string]struct {
			Inputs   map[string]string
			Locked   struct{ Type, Owner, Repo, Rev, NarHash string }
			Original struct{ Type, Owner, Repo, Ref string }
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	flake, err := os.ReadFile(filepath.Join(root, "flake.nix"))
	if err != nil {
		t.Fatal(err)
	}
	url := regexp.MustCompile(`inputs\.nixpkgs\.url = "github:([^/]+)/([^/]+)/([^"]+)";`).FindStringSubmatch(string(flake))
	node := lock.Nodes[lock.Nodes["root"].Inputs["nixpkgs"]]
	if url == nil || node.Original.Owner != url[1] || node.Original.Repo != url[2] || node.Original.Ref != url[3] {
		t.Errorf("flake.lock locks %+v, but flake.nix names %q; run: nix flake update", node.Original, url)
	}
	locked := node.Locked
	if locked.Owner != node.Original.Owner || locked.Repo != node.Original.Repo ||
		!regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(locked.Rev) || !regexp.MustCompile(`^sha256-[0-9A-Za-z+/]{43}=$`).MatchString(locked.NarHash) {
		t.Errorf("locked: %+v", locked)
	}
	if len(lock.Nodes) != 2 || lock.Version != 7 {
		t.Errorf("flake.lock has version %d and %d nodes, want 7 and 2: root and nixpkgs", lock.Version, len(lock.Nodes))
	}
}
