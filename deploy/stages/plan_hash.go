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

// sourceHashRE is the hash in the store path of a flake's source. Each commit of the flake changes it.
var sourceHashRE = regexp.MustCompile(`/nix/store/[0-9a-z]{32}-source([^0-9A-Za-z+._?=-])`)

// HashDeployment returns a hash of the options of a node's deployment and machine, without the contents of keys. A path in the
// source of a flake is hashed without the store path of the source, so that a change of another file there does not matter. Only
// the path of an image is hashed as it is, because nothing else shows that the image of a new machine has changed.
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

// HashSource returns a hash of the hive's file, or of flake.nix and flake.lock. A file that the hive imports is not part of it: the
// derivations of the nodes show its changes.
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
