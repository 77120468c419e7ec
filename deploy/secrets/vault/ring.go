package vault

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// ring is a list of encryption keys. Each line contains a key's name and the key in base64. Data is
// encrypted with the first key, and decrypted with any key. The names are key1, key2, … in the order of
// generation, and never change, because they are stored with the encrypted data.
//
// All nodes must have a key before the first node encrypts with it. A rotation therefore has two steps:
// a new key is added at the end, and later the key is moved to the front. Keys are never removed, since
// data that is encrypted with an old key may still exist.
type ring []string

func parseRing(text []byte) ring {
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func (r ring) text() []byte { return []byte(strings.Join(r, "\n") + "\n") }

// withKey returns the ring with a new key at the end.
func (r ring) withKey(key []byte) ring {
	return append(r, fmt.Sprintf("key%d %s", len(r)+1, base64.StdEncoding.EncodeToString(key)))
}

// indexNewest returns the index of the key that was generated last.
func (r ring) indexNewest() int {
	for i, line := range r {
		if strings.HasPrefix(line, fmt.Sprintf("key%d ", len(r))) {
			return i
		}
	}
	return 0
}

// activateNewest returns the ring with its newest key moved to the front, so that data is encrypted with this key.
func (r ring) activateNewest() ring {
	i := r.indexNewest()
	return append(append(ring{r[i]}, r[:i]...), r[i+1:]...)
}
