package stages

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"regexp"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/nixeval"
)

// sourceHashRE matches the store path of a flake's source. The hash in this path changes with each commit of the flake.
var sourceHashRE = regexp.MustCompile(`/nix/store/[0-9a-z]{32}-source([^0-9A-Za-z+._?=-])`)

// HashDeployment returns a hash of a node's deployment and machine options, without the contents of keys. If an option is a path
// in the source of a flake, the store path of the source is left out of the hash, so that a change of another file of the flake
// does not matter. Only the path of an image is hashed in full, because nothing else shows that the image of a new machine has
// changed.
func HashDeployment(hive *nixeval.Hive, n nixeval.Node) string {
	u := hive.Unit(n.Unit)
	if u == nil {
		return ""
	}
	role := hive.Roles[n.Role]
	image := role.Image
	role.Count, role.Image = 0, nil // leave out the count of the role, because another number of nodes does not change this node
	deployment := u.Deployment
	deployment.Modules = nil           // the system shows their changes
	data, err := json.Marshal(struct { // a Secret is encoded as (secret)
		Node       nixeval.Node
		Deployment nixeval.Deployment
		Role       nixeval.Role
		Cluster    *nixeval.Cluster
	}{n, deployment, role, hive.Cluster})
	if err != nil {
		return err.Error()
	}
	sum := sha256.New()
	sum.Write(sourceHashRE.ReplaceAll(data, []byte("source$1")))
	if image != nil {
		sum.Write([]byte("\x00" + *image))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// HashSource returns a hash of the hive's file, or of the flake.nix and flake.lock of a flake. It does not contain files that the
// hive imports: a change of such a file shows in the derivations of the nodes.
func HashSource(s nixeval.Source) string {
	files := []string{s.File}
	if s.IsFlake() {
		files = []string{filepath.Join(s.Dir, "flake.nix"), filepath.Join(s.Dir, "flake.lock")}
	}
	sum := sha256.New()
	for _, file := range files {
		data, err := durable.Read(file, durable.ConfigSize)
		if err != nil {
			continue
		}
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
