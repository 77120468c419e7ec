package libvirt

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"

	"github.com/nixbench/nixbench/deploy/durable"
)

// uploadFile creates a volume with the content of a file. Holes are preserved, because most of a root
// disk is a hole: only allocated ranges are sent and stored.
func (p *pool) uploadFile(v volume, file string) error {
	f, st, err := durable.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	size := st.Size()
	return p.writeVolume(v, size, libvirt.STORAGE_VOL_UPLOAD_SPARSE_STREAM, func(s *libvirt.Stream) error {
		buf := make([]byte, 262120) // what a message of libvirt's protocol transports; libvirt sends more bytes in two messages
		for at := int64(0); at < size; {
			start, end, err := findNextData(f, at, size)
			if err == nil && start > at {
				err = s.SendHole(start-at, 0)
			}
			if err != nil {
				return err
			}
			for at = start; at < end; {
				if err := p.ctx.Err(); err != nil {
					return err
				}
				n, err := f.ReadAt(buf[:min(int64(len(buf)), end-at)], at)
				if n == 0 {
					return fmt.Errorf("read %s: %w", f.Name(), err)
				}
				if err := sendAll(s, buf[:n]); err != nil {
					return err
				}
				at += int64(n)
				p.reportProgress()
			}
		}
		return nil
	})
}

// uploadBytes creates a small volume with this content.
func (p *pool) uploadBytes(v volume, data []byte) error {
	return p.writeVolume(v, int64(len(data)), 0, func(s *libvirt.Stream) error { return sendAll(s, data) })
}

// writeVolume creates a volume of this size, and calls the function content, which writes data to a stream to the volume. After an error
// it aborts the stream.
func (p *pool) writeVolume(v volume, size int64, flags libvirt.StorageVolUploadFlags, content func(*libvirt.Stream) error) error {
	v.Capacity = uint64(size)
	vol, err := p.createVolume(v)
	if err != nil || p.host.test || size == 0 {
		return err
	}
	if err := p.beforeChange("upload"); err != nil {
		return err
	}
	s, err := p.conn.NewStream(0)
	if err != nil {
		return err
	}
	p.freeAtEnd(s)
	if err := vol.Upload(s, 0, uint64(size), flags); err != nil {
		return err
	}
	if err := content(s); err != nil {
		_ = s.Abort()
		return err
	}
	return s.Finish()
}

func sendAll(s *libvirt.Stream, data []byte) error {
	for len(data) > 0 {
		n, err := s.Send(data)
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// findNextData returns the first range after offset at that is not a hole.
func findNextData(f *os.File, at, size int64) (start, end int64, err error) {
	start, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size, nil // the rest of the file is a hole
	}
	if err != nil {
		return 0, 0, err
	}
	end, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
	return start, min(end, size), err
}

func (p *pool) downloadEnd(name string, max int) ([]byte, error) {
	vol, err := p.findVolume(name)
	if err != nil || vol == nil {
		return nil, err
	}
	info, err := vol.GetInfo()
	if err != nil {
		return nil, err
	}
	from := info.Capacity - min(info.Capacity, uint64(max))
	s, err := p.conn.NewStream(0)
	if err != nil {
		return nil, err
	}
	p.freeAtEnd(s)
	if err := vol.Download(s, from, 0, 0); err != nil {
		return nil, err
	}
	var all []byte
	if err := s.RecvAll(func(_ *libvirt.Stream, data []byte) (int, error) { all = append(all, data...); return len(data), nil }); err != nil {
		_ = s.Abort()
		return nil, err
	}
	return all, s.Finish()
}
