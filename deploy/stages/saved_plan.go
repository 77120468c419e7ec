package stages

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

// SavedPlan is the content of a plan file: what `nixbench plan --out` has shown, and the command's arguments. It has names, store
// paths and hashes, but no contents of keys.
type SavedPlan struct {
	Version   int       `json:"version"`
	Nixbench  string    `json:"nixbench"` // version of nixbench
	Made      time.Time `json:"made"`
	Cluster   string    `json:"cluster"`
	Hive      string    `json:"hive"`               // file or flake reference
	IsFlake   bool      `json:"isFlake"`            // Hive is a flake reference
	Source    string    `json:"source"`             // hash of the hive's file, or of flake.nix and flake.lock
	Revision  string    `json:"revision,omitempty"` // git revision of the hive
	Scheduler string    `json:"scheduler,omitempty"`

	Arguments PlanArguments `json:"arguments"`

	// Deployments contains for each node a hash of the options of its deployment and its machine.
	Deployments map[string]string `json:"deployments"`
	Nodes       []Preview         `json:"nodes"`

	// MAC is the HMAC-SHA256 of the other fields. Its key is the plan key in the cluster's state. MAC is empty in a plan that was
	// read from a file.
	MAC string `json:"mac,omitempty"`
}

// PlanArguments are the flags of `plan` that determine the plan.
type PlanArguments struct {
	On             []string `json:"on"`
	Sets           []string `json:"sets"`
	NoKeys         bool     `json:"noKeys"`
	Recreate       bool     `json:"recreate"`
	NoDrain        bool     `json:"noDrain"`
	DrainAllowed   []string `json:"drainAllowed"` // the flags of engines that allow drains to delete work
	MaxUnavailable string   `json:"maxUnavailable"`
}

// planVersion is the version of the format of plan files.
const planVersion = 1

// Write authenticates the plan with the key, and writes it to a file that only the current user can read.
func (s SavedPlan) Write(file string, key []byte) error {
	s.Version, s.MAC = planVersion, ""
	data, err := json.Marshal(s)
	if err == nil {
		data, _, err = splitMAC(data)
	}
	if err == nil {
		s.MAC = hex.EncodeToString(authenticate(data, key))
		data, err = json.MarshalIndent(s, "", "  ")
	}
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	return durable.Write(file, append(data, '\n'))
}

// splitMAC splits the JSON of a plan file into its MAC and all other fields. The returned fields do not depend on the order of the
// fields in the file.
func splitMAC(data []byte) (fields []byte, mac string, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, "", err
	}
	if text, found := all["mac"]; found {
		err = json.Unmarshal(text, &mac)
		delete(all, "mac")
	}
	fields, encodeErr := json.Marshal(all)
	return fields, mac, errors.Join(err, encodeErr)
}

func authenticate(fields, key []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(fields)
	return h.Sum(nil)
}

// IsPlan reports whether a file is a plan file, also one of another version of nixbench.
func IsPlan(file string) bool {
	data, err := durable.Read(file, durable.ConfigSize)
	if err != nil {
		return false
	}
	var header struct {
		Version     int
		Made        time.Time
		Hive        string
		Deployments map[string]string
	}
	return json.Unmarshal(data, &header) == nil && header.Version > 0 && header.Hive != "" && header.Deployments != nil && !header.Made.IsZero()
}

// ReadPlan reads a plan file. keyOf returns the plan key in the state of the plan's cluster, or nothing if the state has none. A
// plan that was not authenticated with this key is an error, because whoever writes a plan chooses what is deployed.
func ReadPlan(file string, keyOf func(SavedPlan) ([]byte, error)) (SavedPlan, error) {
	var s SavedPlan
	usage := func(format string, args ...any) error {
		return failure.WithHint(failure.WithKind(failure.Usage, fmt.Errorf("plan %s: "+format, append([]any{file}, args...)...)), "nixbench plan --out FILE writes a plan")
	}
	data, err := durable.Read(file, durable.ConfigSize)
	var pathErr *fs.PathError
	switch {
	case errors.As(err, &pathErr):
		return s, usage("%w", pathErr.Err)
	case err != nil:
		return s, usage("%w", err)
	}
	var header struct{ Version int }
	if err := json.Unmarshal(data, &header); err != nil || header.Version == 0 {
		return s, usage("the file is not a plan")
	}
	if header.Version != planVersion {
		return s, usage("the plan has version %d, and this nixbench reads version %d", header.Version, planVersion)
	}
	fields, mac, err := splitMAC(data)
	if err != nil {
		return s, usage("the file is damaged: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(fields))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return s, usage("the file is damaged: %w", err)
	}
	if s.Hive == "" || slices.ContainsFunc(s.Nodes, func(p Preview) bool { return p.Node == "" || p.Action == "" }) {
		return s, usage("the file is damaged: the hive, or the name or the action of a node is missing")
	}
	key, err := keyOf(s)
	if err != nil {
		return s, err
	}
	if sum, err := hex.DecodeString(mac); err != nil || len(key) == 0 || !hmac.Equal(sum, authenticate(fields, key)) {
		return s, usage("the state of cluster %s here has not written it, or it was changed", s.Cluster)
	}
	return s, nil
}
