package remote

import "sync"

// tailBuffer keeps the last bytes written to it.
type tailBuffer struct {
	mu    sync.Mutex
	limit int
	data  []byte
	cut   bool // earlier bytes were dropped
}

func newTail(limit int) *tailBuffer { return &tailBuffer{limit: limit} }

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if over := len(t.data) - t.limit; over > 0 {
		t.data, t.cut = t.data[:copy(t.data, t.data[over:])], true
	}
	return len(p), nil
}

// String returns the last bytes written. "…" in front means that earlier bytes were dropped.
func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cut {
		return "…" + string(t.data)
	}
	return string(t.data)
}
