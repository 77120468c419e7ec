package daemon

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// All integers of the protocol have 64 bits, little-endian. A string is its length, its bytes, and zeros up to a multiple of eight bytes.

// errTooMuch means that a daemon exceeds a limit.
var errTooMuch = errors.New("the Nix daemon has sent too much")

// maxString is the maximal length of a string or log message of a daemon in bytes.
const maxString = 1 << 20

// Put writes values: uint64, bool, string and []string. If a write fails, the next Flush of w returns the error.
func Put(w *bufio.Writer, values ...any) {
	for _, v := range values {
		switch v := v.(type) {
		case uint64:
			_, _ = w.Write(binary.LittleEndian.AppendUint64(w.AvailableBuffer(), v))
		case bool:
			Put(w, map[bool]uint64{true: 1}[v])
		case string:
			Put(w, uint64(len(v)))
			_, _ = w.WriteString(v)
			_, _ = w.Write(make([]byte, -len(v)&7))
		case []string:
			Put(w, uint64(len(v)))
			for _, s := range v {
				Put(w, s)
			}
		}
	}
}

// Decoder reads values. After an error it returns zero values, so its user must check Err.
type Decoder struct {
	*bufio.Reader
	Err  error
	Left int64 // number of bytes of memory that the strings still to be read may use
}

// GetBytes reads n bytes, and the zeros that fill them up to a multiple of eight bytes.
func (d *Decoder) GetBytes(n uint64) []byte {
	b := make([]byte, n+-n&7)
	if d.Err == nil {
		_, d.Err = io.ReadFull(d.Reader, b)
	}
	if d.Err != nil {
		clear(b)
	}
	return b[:n]
}

// GetInt reads an integer or a boolean.
func (d *Decoder) GetInt() uint64 { return binary.LittleEndian.Uint64(d.GetBytes(8)) }

// GetString reads a string.
func (d *Decoder) GetString() string {
	n := d.GetInt()
	if d.Take(n); d.Err != nil {
		return ""
	}
	return string(d.GetBytes(n))
}

// Take subtracts the memory of a string of n bytes from Left. An empty string in a list also takes 16 bytes.
func (d *Decoder) Take(n uint64) {
	if d.Left -= int64(min(n, maxString)) + 16; d.Err == nil && (n > maxString || d.Left < 0) {
		d.Err = errTooMuch
	}
}

// GetStrings reads a list of strings.
func (d *Decoder) GetStrings() (list []string) {
	for n := d.GetInt(); n > 0 && d.Err == nil; n-- {
		list = append(list, d.GetString())
	}
	return list
}
