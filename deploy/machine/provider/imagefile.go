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

// CheckImage returns an error if machines of this kind cannot have a disk with the content of the image.
func CheckImage(i Image, kind Kind) error {
	if kind == Container && i.Format != Raw {
		return fmt.Errorf("%w: %s is a %s, and containers need a raw file system", ErrImage, i.Disk, i.Format)
	}
	return nil
}
