package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

// SavedPlan is the content of a plan file: what `nixbench plan --out` has shown, and the arguments with which it was made. It has
// names, store paths and hashes, but no contents of keys.
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
}

// PlanArguments are the flags of `plan` that determine the plan.
type PlanArguments struct {
	On             []string `json:"on"`
	Sets           []string `json:"sets"`
	NoKeys         bool     `json:"noKeys"`
	Recreate       bool     `json:"recreate"`
	NoDrain        bool     `json:"noDrain"`
	DrainBarePods  bool     `json:"drainBarePods"`
	DrainLocalData bool     `json:"drainLocalData"`
	MaxUnavailable string   `json:"maxUnavailable"`
}

// planVersion is the version of the format of plan files.
const planVersion = 1

// Write writes the plan to a file that only the current user can read.
func (s SavedPlan) Write(file string) error {
	s.Version = planVersion
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	return durable.Write(file, append(data, '\n'))
}

// IsPlan reports whether a file is a plan, of this or another version of nixbench.
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

// ReadPlan reads a plan file.
func ReadPlan(file string) (SavedPlan, error) {
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
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return s, usage("the file is damaged: %w", err)
	}
	if s.Hive == "" || slices.ContainsFunc(s.Nodes, func(p Preview) bool { return p.Node == "" || p.Action == "" }) {
		return s, usage("the file is damaged: the hive, or the name or the action of a node is missing")
	}
	return s, nil
}
