package provider

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/nixbench/nixbench/deploy/durable"
)

// CheckImage validates an image's header. It returns the size of the image's virtual disk in bytes.
func CheckImage(i Image, kind Kind) (uint64, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrImage, i.Disk, fmt.Sprintf(format, args...))
	}
	f, st, err := durable.Open(i.Disk)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrImage, err)
	}
	defer f.Close()
	head := make([]byte, 32)
	if _, err := io.ReadFull(f, head); err != nil {
		return 0, bad("it is too short")
	}
	isQCOW2 := string(head[:4]) == "QFI\xfb"
	switch {
	case kind == Container && i.Format != Raw:
		return 0, bad("containers need a raw file system, not %s", i.Format)
	case i.Format == Raw && isQCOW2:
		return 0, bad("it is a qcow2, not raw")
	case i.Format == Raw:
		return uint64(st.Size()), nil
	case !isQCOW2:
		return 0, bad("it is not a qcow2")
	}
	if binary.BigEndian.Uint64(head[8:]) != 0 {
		return 0, bad("it is based on another image; flatten it with qemu-img convert")
	}
	return binary.BigEndian.Uint64(head[24:]), nil
}

// AllocatedSize returns the space that a file takes on disk in bytes. Holes take no space. It returns 0 if the file does not exist.
func AllocatedSize(file string) uint64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return min(uint64(s.Blocks)*512, uint64(info.Size()))
	}
	return uint64(info.Size())
}
