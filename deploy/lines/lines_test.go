package lines

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestWriter(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"lines", "a\nb\r\n\nc\n", []string{"a", "b", "", "c"}},
		{"no end", "a\nb", []string{"a", "b"}},
		{"nothing", "", nil},
		{"just fits", "12345678\n1", []string{"12345678", "1"}},
		{"a byte too many", "123456789\n1", []string{"12345678", "1"}},
		{"long", "1234567812345678123\nx", []string{"12345678", "x"}},
		{"long, no end", "123456781234567812", []string{"12345678"}},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "in halves": iotest.HalfReader,
		} {
			t.Run(c.name+", "+how, func(t *testing.T) {
				var got []string
				w := &Writer{Max: 8, Each: func(line string) { got = append(got, line) }}
				if n, err := io.Copy(w, wrap(strings.NewReader(c.in))); n != int64(len(c.in)) || err != nil {
					t.Errorf("wrote %d, %v", n, err)
				}
				w.Flush()
				w.Flush() // nothing is left
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// Whatever comes without a line's end, little of it is kept.
func TestWriterKeepsLittle(t *testing.T) {
	w := &Writer{Each: func(line string) { t.Errorf("a line of %d bytes", len(line)) }}
	for range 100 {
		fmt.Fprint(w, strings.Repeat("x", 100<<10))
	}
	if cap(w.rest) > 2*longest {
		t.Errorf("%d bytes are kept", cap(w.rest))
	}
}
