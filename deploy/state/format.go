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

// version is the format version of state.json.
const version = 3

// Load reads the state. If state.json does not exist and no machine was booted, the state is empty.
func (d Dir) Load() (*State, error) {
	file := d.stateFile()
	data, err := durable.Read(file, durable.ConfigSize)
	if errors.Is(err, os.ErrNotExist) {
		if err := newStateLostError(d, err); err != nil {
			return nil, err
		}
		return (&State{Version: version}).Clone(), nil
	}
	if err != nil {
		return nil, &FolderError{d, err}
	}
	s, err := Decode(file, data)
	if err != nil {
		return nil, newStateLostError(d, err)
	}
	return s, nil
}

// Decode decodes data, the content of a state.json. file is the name of the file for errors.
func Decode(file string, data []byte) (*State, error) {
	var s State
	if err := DecodeFile(file, data, version, &s); err != nil {
		return nil, err
	}
	return s.Clone(), nil
}

func (d Dir) stateFile() string { return filepath.Join(string(d), "state.json") }

// DecodeFile decodes data, the content of a JSON file, and returns an error if its format version is not version.
// Unknown fields are an error, because they would be lost when the file is written again.
func DecodeFile(file string, data []byte, version int, into any) error {
	damaged := func(err error) error { return &FileError{File: file, Err: err} }
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return damaged(describeJSONError(err, data))
	}
	if head.Version < 1 {
		return damaged(errors.New("it has no version"))
	}
	if head.Version != version {
		return &FileError{File: file, Foreign: head.Version}
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
