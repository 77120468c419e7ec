package runs

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
)

// ReadEvents reads events, one JSON object per line. It skips damaged lines and returns their number: the last line may
// be incomplete if the run was killed, and any line if the disk was full.
func ReadEvents(r io.Reader) (events []event.Event, damaged int, err error) {
	b := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := b.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			var e event.Event
			if json.Unmarshal(line, &e) != nil || e.Kind == "" {
				damaged++
			} else {
				events = append(events, e)
			}
		}
		if errors.Is(err, io.EOF) {
			return events, damaged, nil
		}
		if err != nil {
			return nil, damaged, err
		}
	}
}

// logPath returns the path of a node's log. It encodes the name of the node so that the path is always inside the
// folder, and that two nodes never have the same path. It does not rely on the validation of names in the hive.
func logPath(folder, node string) string {
	var b strings.Builder
	for i := range len(node) {
		c := node[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	name := b.String()
	if len(name) > 200 {
		sum := sha256.Sum256([]byte(node))
		name = name[:150] + "%" + hex.EncodeToString(sum[:8])
	}
	if name == "" {
		name = "%"
	}
	return filepath.Join(folder, "nodes", name+".log")
}
