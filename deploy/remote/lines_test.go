package remote

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestLines(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string // those that are continued begin with +
	}{
		{"lines", "a\nb\r\n\nc\n", []string{"a", "b", "", "c"}},
		{"no end", "a\nb", []string{"a", "b"}},
		{"nothing", "", nil},
		{"just fits", "12345678\n1", []string{"12345678", "1"}},
		{"a byte too many", "123456789\n1", []string{"12345678", "+9", "1"}},
		{"many pieces", "1234567812345678123\nx", []string{"12345678", "+12345678", "+123", "x"}},
		{"many pieces, no end", "123456781234567812", []string{"12345678", "+12345678", "+12"}},
		{"a character at the seam", "123456…89\n", []string{"123456", "+…89"}},
		{"a character before it", "12345…9", []string{"12345…", "+9"}},
		{"no text", strings.Repeat("\x80", 9), []string{strings.Repeat("\x80", 8), "+\x80"}},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "in halves": iotest.HalfReader,
		} {
			t.Run(c.name+", "+how, func(t *testing.T) {
				var got []string
				l := &Lines{Max: 8, Each: func(line string, continued bool) {
					if continued {
						line = "+" + line
					}
					got = append(got, line)
				}}
				if n, err := io.Copy(l, wrap(strings.NewReader(c.in))); n != int64(len(c.in)) || err != nil {
					t.Errorf("wrote %d, %v", n, err)
				}
				l.Flush()
				l.Flush() // nothing is left
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// Whatever comes without a line's end, little of it is kept.
func TestLinesKeepLittle(t *testing.T) {
	longest, total := 0, 0
	l := &Lines{Each: func(line string, _ bool) { longest, total = max(longest, len(line)), total+len(line) }}
	fmt.Fprint(l, strings.Repeat("x", 10<<20))
	if total < 10<<20-longestLine || longest != longestLine {
		t.Errorf("%d bytes have come out, %d of them at once", total, longest)
	}
	if cap(l.rest) > 4*longestLine {
		t.Errorf("%d bytes are kept", cap(l.rest))
	}
}
