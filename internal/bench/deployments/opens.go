package deployments

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openCounter counts how often processes of this host open a file. The nodes have stores of their own.
type openCounter struct {
	events *os.File
	count  atomic.Int64
}

// watchOpens starts to count the opens of the file.
func watchOpens(path string) (*openCounter, error) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_LARGEFILE)
	if err != nil {
		return nil, fmt.Errorf("count the opens of %s: fanotify_init: %w", path, err)
	}
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN, unix.AT_FDCWD, path); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("count the opens of %s: fanotify_mark: %w", path, err)
	}
	c := &openCounter{events: os.NewFile(uintptr(fd), "file events")}
	go c.readEvents()
	return c, nil
}

func (c *openCounter) readEvents() {
	buffer := make([]byte, 4096)
	for {
		n, err := c.events.Read(buffer)
		if err != nil {
			return // it is closed
		}
		// Each event begins with its length, and has a descriptor of the file, which the reader closes.
		const minimum = int(unsafe.Sizeof(unix.FanotifyEventMetadata{}))
		for rest := buffer[:n]; len(rest) >= minimum; {
			length := int(binary.NativeEndian.Uint32(rest))
			if file := int32(binary.NativeEndian.Uint32(rest[unsafe.Offsetof(unix.FanotifyEventMetadata{}.Fd):])); file >= 0 {
				unix.Close(int(file))
			}
			c.count.Add(1)
			if length < minimum || length > len(rest) {
				break
			}
			rest = rest[length:]
		}
	}
}

func (c *openCounter) stop() { c.events.Close() }
