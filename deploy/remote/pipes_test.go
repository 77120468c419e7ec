package remote

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math/rand"
	"strings"
	"testing"
	"testing/iotest"
)

// chunks notes how much it is asked for, and gives all of that while it has it.
type chunks struct {
	data  []byte
	asked []int
}

func (c *chunks) Read(p []byte) (int, error) {
	c.asked = append(c.asked, len(p))
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.data)
	c.data = c.data[n:]
	return n, nil
}

func TestFrugalCopy(t *testing.T) {
	data := make([]byte, 100_000)
	rand.New(rand.NewSource(1)).Read(data)
	var out bytes.Buffer
	from := &chunks{data: data}
	if n, err := copyFrugally(&out, from); err != nil || n != int64(len(data)) || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("copied %d, %v", n, err)
	}
	if from.asked[0] != smallBuffer || from.asked[1] != bigBuffer {
		t.Errorf("asked for %v", from.asked)
	}
	out.Reset()
	slow := &chunks{data: []byte("a few words")}
	if _, err := copyFrugally(&out, io.MultiReader(slow, slow)); err != nil || out.String() != "a few words" {
		t.Errorf("%q, %v", out.String(), err)
	}
	for _, asked := range slow.asked {
		if asked != smallBuffer {
			t.Errorf("asked for %d with little to read", asked)
		}
	}
	if _, err := copyFrugally(io.Discard, iotest.DataErrReader(strings.NewReader("x"))); err != nil {
		t.Errorf("an end beside data: %v", err)
	}
	broken := errors.New("broken")
	if _, err := copyFrugally(io.Discard, iotest.ErrReader(broken)); err != broken {
		t.Errorf("a reader that breaks: %v", err)
	}
	if _, err := copyFrugally(badWriter{broken}, strings.NewReader("x")); err != broken {
		t.Errorf("a writer that breaks: %v", err)
	}
}

type badWriter struct{ err error }

func (b badWriter) Write([]byte) (int, error) { return 0, b.err }

func copyFrugally(w io.Writer, r io.Reader) (int64, error) {
	total, readErr, writeErr := growingCopy(w, r, bigBuffer)
	return total, cmp.Or(writeErr, readErr)
}
