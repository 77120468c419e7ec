package provider

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/nixbench/nixbench/deploy/durable"
)

// CheckImage validates an image's header, and that the file is complete, because a download may have been
// interrupted. It returns the size of the image's virtual disk in bytes.
func CheckImage(i Image, kind Kind) (uint64, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrImage, i.Disk, fmt.Sprintf(format, args...))
	}
	f, st, err := durable.Open(i.Disk)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrImage, err)
	}
	defer f.Close()
	head := make([]byte, 72)
	if _, err := io.ReadFull(f, head); err != nil {
		return 0, bad("it is too short")
	}
	isQCOW2 := string(head[:4]) == "QFI\xfb"
	switch {
	case kind == Container && isQCOW2:
		return 0, bad("it is a qcow2; containers need a raw file system")
	case kind == Container && i.Format != Raw:
		return 0, bad("containers need a raw file system, not %s", i.Format)
	case i.Format == Raw && isQCOW2:
		return 0, bad("it is a qcow2, not raw")
	case i.Format == Raw:
		return uint64(st.Size()), nil
	case !isQCOW2:
		return 0, bad("it is not a qcow2")
	}
	if version := binary.BigEndian.Uint32(head[4:]); version != 2 && version != 3 {
		return 0, bad("qcow2 version %d is not supported", version)
	}
	if binary.BigEndian.Uint64(head[8:]) != 0 {
		return 0, bad("it is based on another image; flatten it with qemu-img convert")
	}
	if binary.BigEndian.Uint32(head[32:]) != 0 {
		return 0, bad("it is encrypted")
	}
	if err := checkClusters(f, st.Size(), head); err != nil {
		return 0, bad("%v", err)
	}
	return binary.BigEndian.Uint64(head[24:]), nil
}

// checkClusters reads both levels of a qcow2 file's cluster tables and returns an error if a cluster lies
// outside the file.
func checkClusters(f io.ReaderAt, size int64, head []byte) error {
	bits := binary.BigEndian.Uint32(head[20:])
	entries := binary.BigEndian.Uint32(head[36:])
	if bits < 9 || bits > 21 || entries > 1<<22 {
		return errors.New("its header is damaged")
	}
	short := errors.New("a part of it is missing")
	const offset = 1<<56 - 1<<9
	l1 := make([]byte, 8*int64(entries))
	if _, err := f.ReadAt(l1, int64(binary.BigEndian.Uint64(head[40:]))); err != nil {
		return short
	}
	table := make([]byte, 1<<bits)
	for ; len(l1) > 0; l1 = l1[8:] {
		at := int64(binary.BigEndian.Uint64(l1) & offset)
		if at == 0 {
			continue
		}
		if _, err := f.ReadAt(table, at); err != nil {
			return short
		}
		for e := table; len(e) > 0; e = e[8:] {
			entry := binary.BigEndian.Uint64(e)
			if entry>>62&1 == 0 && int64(entry&offset) >= size { // not compressed
				return short
			}
		}
	}
	return nil
}
