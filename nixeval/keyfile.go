package nixeval

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
)

// findKeyFiles replaces each key file that is in the store according to Nix, and is not there, by the file with the same name and
// content in the flake's folder. The reason is that Nix 2.35 and later do not copy the source of a flake to the store unless a
// derivation needs it. nixbench does not make Nix copy it, because all users can read the store. dir is the folder of the flake; its
// source may be a folder above, the top of a git repository.
func findKeyFiles(dir string, s surveyResult) {
	for _, d := range s.Deployments {
		for name, k := range d.Keys {
			if k.FileHash != "" && k.isDeleted() {
				_, rel, _ := strings.Cut(strings.TrimPrefix(*k.KeyFile, "/nix/store/"), "/")
				for top := dir; ; top = filepath.Dir(top) {
					file := filepath.Join(top, rel)
					data, err := durable.Read(file, durable.KeySize)
					if sum := sha256.Sum256(data); err == nil && hex.EncodeToString(sum[:]) == k.FileHash {
						k.KeyFile = &file
						break
					}
					if top == filepath.Dir(top) {
						break
					}
				}
			}
			k.FileHash = ""
			d.Keys[name] = k
		}
	}
}
