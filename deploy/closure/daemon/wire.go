package daemon

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

var errTooMuch = errors.New("the Nix daemon has sent too much")

// maxString is the maximal length of a string or log message of a daemon in bytes.
const maxString = 1 << 20

// put writes values: uint64, bool, string and []string. The error is that of the next Flush.
func put(w *bufio.Writer, values ...any) {
	for _, v := range values {
		switch v := v.(type) {
		case uint64:
			_, _ = w.Write(binary.LittleEndian.AppendUint64(w.AvailableBuffer(), v))
		case bool:
			put(w, map[bool]uint64{true: 1}[v])
		case string:
			put(w, uint64(len(v)))
			_, _ = w.WriteString(v)
			_, _ = w.Write(make([]byte, -len(v)&7))
		case []string:
			put(w, uint64(len(v)))
			for _, s := range v {
				put(w, s)
			}
		}
	}
}

// decoder reads values. After an error it returns zero values; the owner checks err.
type decoder struct {
	*bufio.Reader
	err  error
	left int64 // bytes of memory that further strings may use
}

// getBytes reads n bytes and the zeros behind them.
func (d *decoder) getBytes(n uint64) []byte {
	b := make([]byte, n+-n&7)
	if d.err == nil {
		_, d.err = io.ReadFull(d.Reader, b)
	}
	if d.err != nil {
		clear(b)
	}
	return b[:n]
}

func (d *decoder) getInt() uint64 { return binary.LittleEndian.Uint64(d.getBytes(8)) }

func (d *decoder) getString() string {
	n := d.getInt()
	if d.take(n); d.err != nil {
		return ""
	}
	return string(d.getBytes(n))
}

// take counts the memory of a string: a list has 16 bytes for an empty one.
func (d *decoder) take(n uint64) {
	if d.left -= int64(min(n, maxString)) + 16; d.err == nil && (n > maxString || d.left < 0) {
		d.err = errTooMuch
	}
}

func (d *decoder) getStrings() (list []string) {
	for n := d.getInt(); n > 0 && d.err == nil; n-- {
		list = append(list, d.getString())
	}
	return list
}
