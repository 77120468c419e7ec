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

// The format versions that this nixbench writes: of the state, and of a run's record.
const (
	version    = 2
	runVersion = 1
)

// upgrade converts the fields of a file to the next version.
type upgrade func(fields map[string]json.RawMessage) error

// upgrades returns, for each older version of the state, the upgrade to the next version.
func upgrades() map[int]upgrade {
	return map[int]upgrade{
		1: func(map[string]json.RawMessage) error { return nil }, // version 1 had no machines
	}
}

// Load reads the state. It is empty if there is no file and no machine was booted.
func (d Dir) Load() (*State, error) {
	file := d.stateFile()
	data, err := durable.Read(file, durable.ConfigSize)
	if errors.Is(err, os.ErrNotExist) {
		if err := d.stateLost(err); err != nil {
			return nil, err
		}
		return (&State{Version: version}).Clone(), nil
	}
	if err != nil {
		return nil, &FolderError{d, err}
	}
	var s State
	if err := decode(file, data, version, upgrades(), &s); err != nil {
		return nil, d.stateLost(err)
	}
	return s.Clone(), nil
}

func (d Dir) stateFile() string { return filepath.Join(string(d), "state.json") }

// decode reads a versioned file and upgrades it. Unknown fields are an error, because they
// would be lost when the file is written again.
func decode(file string, data []byte, version int, upgrades map[int]upgrade, into any) error {
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

// upgradeFields applies the upgrades between two versions.
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

// describeJSONError adds the line number to a JSON syntax error.
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
