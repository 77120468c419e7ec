package provider

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/nixbench/nixbench/deploy/durable"
)

// ReadImageFile reads the header of a disk image. It returns the format, and the size of the virtual disk in bytes.
func ReadImageFile(disk string) (Format, uint64, error) {
	f, st, err := durable.Open(disk)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	head := make([]byte, 32)
	if n, err := io.ReadFull(f, head); n < 4 {
		return "", 0, fmt.Errorf("it is too short for a disk image: %w", err)
	}
	switch magic := string(head[:4]); {
	case magic == "QFI\xfb" && binary.BigEndian.Uint64(head[8:]) != 0:
		return "", 0, errors.New("it is based on another image; flatten it with qemu-img convert")
	case magic == "QFI\xfb":
		return QCOW2, binary.BigEndian.Uint64(head[24:]), nil
	case magic == "\xfd7zX", magic[:2] == "\x1f\x8b", magic == "\x28\xb5\x2f\xfd":
		return "", 0, errors.New("it is compressed; unpack it first")
	}
	return Raw, uint64(st.Size()), nil
}

// CheckImage validates an image's header. It returns the size of the image's virtual disk in bytes.
func CheckImage(i Image, kind Kind) (uint64, error) {
	format, size, err := ReadImageFile(i.Disk)
	switch {
	case err != nil:
	case format != i.Format:
		err = fmt.Errorf("it is a %s image, not %s", format, i.Format)
	case kind == Container && format != Raw:
		err = fmt.Errorf("it is a %s, and containers need a raw file system", format)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %s: %w", ErrImage, i.Disk, err)
	}
	return size, nil
}
