package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"al.essio.dev/pkg/shellescape"

	"github.com/nixbench/nixbench/deploy/durable"
)

const (
	exportsFile = "exports.json"
	maxExports  = 1000
)

// Exports returns the digests of the states that were exported from or imported into the folder, the newest last. An
// export contains them, so an import can determine whether the state here is an earlier version of the export.
func Exports(d Dir) ([]string, error) {
	file := contentFile(d, exportsFile)
	data, err := durable.Read(file, durable.ConfigSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &FolderError{d, err}
	}
	var digests []string
	if err := json.Unmarshal(data, &digests); err != nil {
		return nil, &FileError{File: file, Err: describeJSONError(err, data),
			Fix: fmt.Sprintf("remove it: rm %s; the next import may then need --force", shellescape.Quote(file))}
	}
	return digests, nil
}

// RecordExport adds the digest of the present state to the digests of exports, and returns all of them.
func (l *Lock) RecordExport() ([]string, error) {
	if err := l.CheckHeld(); err != nil {
		return nil, err
	}
	digests, err := Exports(l.dir)
	if err != nil {
		return nil, err
	}
	now, err := Digest(l.dir)
	if err != nil {
		return nil, err
	}
	digests = append(slices.DeleteFunc(digests, func(d string) bool { return d == now }), now)
	digests = digests[max(0, len(digests)-maxExports):]
	data, err := json.Marshal(digests)
	if err != nil {
		return nil, err
	}
	return digests, l.dir.Write(contentFile(l.dir, exportsFile), data)
}
