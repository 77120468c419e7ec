package daemon

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxString is the maximal length of a string of a daemon in bytes, and of one of its log messages: an error with its
// trace is shorter.
const maxString = 1 << 20

// encoder writes values. After an error it does nothing; the owner checks err.
type encoder struct {
	*bufio.Writer
	err error
}

func (e *encoder) putInt(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	e.putBytes(b[:])
}

func (e *encoder) putBytes(b []byte) {
	if e.err == nil {
		_, e.err = e.Write(b)
	}
}

func (e *encoder) putBool(b bool) {
	if b {
		e.putInt(1)
	} else {
		e.putInt(0)
	}
}

func (e *encoder) putString(s string) {
	e.putInt(uint64(len(s)))
	if e.err == nil {
		_, e.err = e.WriteString(s)
	}
	e.putBytes(make([]byte, padding(len(s))))
}

func (e *encoder) putStrings(list []string) {
	e.putInt(uint64(len(list)))
	for _, s := range list {
		e.putString(s)
	}
}

func (e *encoder) flush() error {
	if e.err == nil {
		e.err = e.Flush()
	}
	return e.err
}

// padding returns the number of zeros behind n bytes.
func padding(n int) int { return -n & 7 }

// decoder reads values. After an error it returns zero values; the owner checks err.
type decoder struct {
	*bufio.Reader
	err  error
	left int64 // bytes of memory that further strings may use
}

// stringHeader is the memory that an empty string uses in a list.
const stringHeader = 16

// take counts the memory of a string against d.left.
func (d *decoder) take(n uint64) {
	if d.left -= int64(n) + stringHeader; d.left < 0 {
		d.fail(errors.New("the Nix daemon has sent too much"))
	}
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		d.err = err
	}
}

func (d *decoder) readFull(b []byte) {
	if d.err != nil {
		return
	}
	if _, err := io.ReadFull(d.Reader, b); err != nil {
		d.fail(err)
	}
}

func (d *decoder) getInt() uint64 {
	var b [8]byte
	d.readFull(b[:])
	if d.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

func (d *decoder) getBool() bool { return d.getInt() != 0 }

func (d *decoder) getString() string {
	n := d.getInt()
	if n > maxString {
		d.fail(fmt.Errorf("the Nix daemon has sent a string of %d bytes", n))
	} else {
		d.take(n)
	}
	if d.err != nil {
		return ""
	}
	b := make([]byte, int(n)+padding(int(n)))
	d.readFull(b)
	return string(b[:n])
}

func (d *decoder) getStrings() []string {
	var list []string
	for range d.getInt() {
		s := d.getString()
		if d.err != nil {
			return nil
		}
		list = append(list, s)
	}
	return list
}
