package remote

import "sync"

// tailBuffer keeps the last bytes written to it.
type tailBuffer struct {
	mu    sync.Mutex
	limit int
	data  []byte
	cut   bool
}

func newTail(limit int) *tailBuffer { return &tailBuffer{limit: limit} }

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if n > t.limit {
		p, t.cut = p[n-t.limit:], true
	}
	t.data = append(t.data, p...)
	// Drop old data only when there is twice the limit, because dropping copies the rest of the data.
	if len(t.data) > 2*t.limit {
		t.data, t.cut = append([]byte(nil), t.data[len(t.data)-t.limit:]...), true
	}
	return n, nil
}

// String returns the last bytes written. "…" in front means that earlier bytes were dropped.
func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.data) > t.limit {
		return "…" + string(t.data[len(t.data)-t.limit:])
	}
	if t.cut {
		return "…" + string(t.data)
	}
	return string(t.data)
}
