package vault

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// ring is the keys that encrypt what somebody stores, one in a line: its name, and itself in
// base64. The first encrypts; all decrypt. Names say how old a key is, and stay: they are
// stored with what was encrypted.
//
// Those who store together must all know a key before the first of them uses it. So it becomes
// another one in two steps: a new key is added at the end, and later comes first. None is
// ever dropped, since nobody knows what is still encrypted with it.
type ring []string

func parseRing(text []byte) ring {
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func (r ring) text() []byte { return []byte(strings.Join(r, "\n") + "\n") }

func (r ring) add(key []byte) ring {
	return append(r, fmt.Sprintf("key%d %s", len(r)+1, base64.StdEncoding.EncodeToString(key)))
}

// newest is where the newest key is.
func (r ring) newest() int {
	for i, line := range r {
		if strings.HasPrefix(line, fmt.Sprintf("key%d ", len(r))) {
			return i
		}
	}
	return 0
}

// turn is the ring with its newest key first.
func (r ring) turn() ring {
	i := r.newest()
	return append(append(ring{r[i]}, r[:i]...), r[i+1:]...)
}
