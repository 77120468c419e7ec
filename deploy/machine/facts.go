package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/facts"
	"github.com/nixbench/nixbench/deploy/secrets/vault"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// GeneratesSecrets reports whether the hive has keys that nixbench generates. The evaluation of the hive reads public
// facts about these keys, such as hashes.
func (m *Manager) GeneratesSecrets() bool {
	for _, u := range m.Hive.Units {
		for _, k := range u.Deployment.Keys {
			if k.Generated != nil {
				return true
			}
		}
	}
	return false
}

// EncodeFacts encodes the facts about the recorded machines and the generated secrets. It returns nil if
// nixbench boots no machine of the hive and generates no secret.
func (m *Manager) EncodeFacts(recorded *state.State) ([]byte, error) {
	if len(Booted(m.Hive, m.Hive.Nodes)) == 0 && !m.GeneratesSecrets() {
		return nil, nil
	}
	r, err := facts.Make(m.Hive, recorded.Machines)
	if err != nil {
		return nil, err
	}
	if r.Endpoint != nil && r.Endpoint.Port == 0 {
		r.Endpoint.Port = m.APIPort
	}
	if m.Vault != nil {
		if r.Secrets, r.CAHash, err = GeneratedFacts(m.Hive, m.Vault); err != nil {
			return nil, err
		}
	}
	return r.Encode()
}

func (m *Manager) WriteFacts(recorded *state.State) error {
	data, err := m.EncodeFacts(recorded)
	if err != nil || data == nil {
		return err
	}
	return m.Dir.WriteFacts(data, recorded.Machines)
}

func (m *Manager) FactsFile() string {
	if len(Booted(m.Hive, m.Hive.Nodes)) == 0 || !durable.Exists(m.Dir.Facts()) {
		return ""
	}
	return m.Dir.Facts()
}

// clusterCA is the name of the secret with the cluster's CA. The modules of every engine read the hash of its public key as runtime.caHash.
const clusterCA = "cluster-ca"

// GeneratedFacts returns the facts about the generated secrets of the hive, by the name of the key in deployment.keys.
// It also returns the hash of the public key of the cluster's CA. It generates secrets that do not exist yet.
//
// The facts have one entry for each name. So GeneratedFacts returns an error if two evaluation units have a key with
// the same name, unless the secret and the path of the two keys are the same.
func GeneratedFacts(hive *nixeval.Hive, v *vault.Vault) (map[string]facts.Secret, string, error) {
	out := map[string]facts.Secret{}
	owner := map[string]string{}
	caHash := ""
	for _, u := range hive.Units {
		for _, name := range slices.Sorted(maps.Keys(u.Deployment.Keys)) {
			key := u.Deployment.Keys[name]
			if key.Generated == nil {
				continue
			}
			at := fmt.Sprintf("%s.deployment.keys.%s", u.Name, name)
			content, err := v.Part(*key.Generated)
			if err != nil {
				return nil, "", fmt.Errorf("%s: %w", at, err)
			}
			sum := sha256.Sum256(content)
			fact := facts.Secret{Path: key.Path, SHA256: hex.EncodeToString(sum[:])}
			if key.Generated.Part == "certificate" {
				if fact.PublicKeyHash, err = vault.PublicKeyHash(content); err != nil {
					return nil, "", fmt.Errorf("%s: %w", at, err)
				}
				if key.Generated.Secret == clusterCA {
					caHash = fact.PublicKeyHash
				}
			}
			if other, seen := out[name]; seen && other != fact {
				return nil, "", fmt.Errorf("%s and %s.deployment.keys.%s differ, and runtime.secrets has one entry for both; give them different names, or the same secret and destDir", at, owner[name], name)
			}
			out[name], owner[name] = fact, u.Name
		}
	}
	if len(out) == 0 {
		return nil, "", nil
	}
	return out, caHash, nil
}
