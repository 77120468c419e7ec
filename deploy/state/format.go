package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/durable"
)

// The format versions that this nixbench writes.
const (
	version    = 3 // of state.json
	runVersion = 2 // of a run's run.json
)

// upgrade converts the fields of a file from one format version to the next one.
type upgrade func(fields map[string]json.RawMessage) error

// upgrades returns the upgrades of state.json. The key is the version before the upgrade.
func upgrades() map[int]upgrade {
	return map[int]upgrade{
		1: func(map[string]json.RawMessage) error { return nil }, // version 1 had no machines
		2: func(map[string]json.RawMessage) error { return nil }, // version 2 had no memberships
	}
}

// runUpgrades returns the upgrades of run.json, as upgrades does for state.json.
func runUpgrades() map[int]upgrade {
	return map[int]upgrade{
		1: func(map[string]json.RawMessage) error { return nil }, // version 1 had no scheduler
	}
}

// Load reads the state. If state.json does not exist and no machine was booted, the state is empty.
func (d Dir) Load() (*State, error) {
	file := d.stateFile()
	data, err := durable.Read(file, durable.ConfigSize)
	if errors.Is(err, os.ErrNotExist) {
		if err := d.newStateLostError(err); err != nil {
			return nil, err
		}
		return (&State{Version: version}).Clone(), nil
	}
	if err != nil {
		return nil, &FolderError{d, err}
	}
	var s State
	if err := decodeFile(file, data, version, upgrades(), &s); err != nil {
		return nil, d.newStateLostError(err)
	}
	return s.Clone(), nil
}

func (d Dir) stateFile() string { return filepath.Join(string(d), "state.json") }

// decodeFile decodes data, the content of a versioned file, and upgrades it to the given version.
// Unknown fields are an error, because they would be lost when the file is written again.
func decodeFile(file string, data []byte, version int, upgrades map[int]upgrade, into any) error {
	damaged := func(err error) error { return &FileError{File: file, Err: err} }
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return damaged(describeJSONError(err, data))
	}
	if head.Version > version {
		return &FileError{File: file, Newer: head.Version}
	}
	if head.Version < 1 {
		return damaged(errors.New("it has no version"))
	}
	if head.Version < version {
		var err error
		if data, err = upgradeFields(data, head.Version, version, upgrades); err != nil {
			return damaged(err)
		}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return damaged(describeJSONError(err, data))
	}
	if _, err := d.Token(); err != io.EOF {
		return damaged(errors.New("there is data after its end"))
	}
	return nil
}

// upgradeFields applies all upgrades from one version to another.
func upgradeFields(data []byte, from, to int, upgrades map[int]upgrade) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	for v := from; v < to; v++ {
		up := upgrades[v]
		if up == nil {
			return nil, fmt.Errorf("there is no upgrade from version %d to %d", v, v+1)
		}
		if err := up(fields); err != nil {
			return nil, fmt.Errorf("from version %d to %d: %w", v, v+1, err)
		}
		fields["version"] = json.RawMessage(fmt.Sprint(v + 1))
	}
	return json.Marshal(fields)
}

// describeJSONError returns an error that describes err for the user. A syntax error gets its line number.
func describeJSONError(err error, data []byte) error {
	var syntax *json.SyntaxError
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return errors.New("it is empty")
	case errors.As(err, &syntax):
		at := min(int(syntax.Offset), len(data))
		return fmt.Errorf("line %d: %w", 1+bytes.Count(data[:at], []byte("\n")), err)
	}
	return err
}
