package stages

import (
	"strings"
	"testing"

	"github.com/nixbench/nixbench/nixeval"
)

// A change of another file in a flake, which changes the store path of its source, does not change the options of a node.
func TestHashDeploymentInFlake(t *testing.T) {
	t.Parallel()
	hash := func(source, key, image string) string {
		text := func(s string) *string { return &s }
		path := "/nix/store/" + strings.Repeat(source, 32) + "-source/"
		hive := &nixeval.Hive{
			Roles: map[string]nixeval.Role{"w": {Image: &image}},
			Units: []nixeval.Unit{{Name: "w", Nodes: []string{"w-1"}, Deployment: nixeval.Deployment{
				Modules:    text(path + "modules"),
				SSHOptions: []string{"-F", path + "ssh_config"},
				Keys:       map[string]nixeval.Key{"k": {Name: "k", KeyFile: text(path + key)}},
			}}},
		}
		return HashDeployment(hive, nixeval.Node{Name: "w-1", Unit: "w", Role: "w"})
	}
	was := hash("a", "key", "/images/one")
	if hash("b", "key", "/images/one") != was {
		t.Error("another commit of the flake changes the hash")
	}
	if hash("a", "other-key", "/images/one") == was || hash("a", "key", "/images/two") == was {
		t.Error("another key file or image does not change the hash")
	}
}
