package daemon

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// AddPaths sends paths and their files from the local store to the daemon, and waits until the daemon has added all paths. In infos, a
// path must come after the paths that it refers to. AddPaths does not wait for a reply after each path, so a path costs no round trip.
// It calls start before it sends a path, sent when it has sent some bytes of a path, and added when the daemon has registered the next
// path. A daemon that trusts the user requires no signatures. If AddPaths fails, the connection cannot be used any more.
func (c *Conn) AddPaths(infos []*PathInfo, start func(path string), sent func(bytes int), added func()) (err error) {
	written := make(chan error, 1)
	go func() { written <- c.writePaths(infos, start, sent) }()
	for range infos {
		if err = c.readLog(); err != nil {
			c.Close() // makes writePaths return
			break
		}
		added()
	}
	if unreadable := <-written; unreadable != nil {
		return unreadable
	}
	return err
}

// writePaths writes paths to the daemon. It returns an error only if it cannot read a path. It closes the connection if
// it cannot read a path or cannot write to the daemon.
func (c *Conn) writePaths(infos []*PathInfo, start func(path string), sent func(bytes int)) (unreadable error) {
	nar := bufio.NewWriterSize(nil, 256<<10)
	for _, i := range infos {
		start(i.Path)
		Put(c.out, opAddToStoreNar, i.Path, i.Deriver, i.NarHash, i.References, i.RegistrationTime, i.NarSize,
			false, i.Signatures, i.CA, false, true) // the path was not built on the node; no repair, and no check of signatures
		f := &frames{out: c.out, sent: sent}
		nar.Reset(f)
		Put(nar, "nix-archive-1")
		if err := cmp.Or(putTree(nar, i.Path), nar.Flush()); err != nil {
			c.Close()
			if f.err != nil {
				return nil
			}
			return fmt.Errorf("read %s from the local store: %w", i.Path, err)
		}
		Put(c.out, uint64(0)) // no further frame
	}
	if c.out.Flush() != nil {
		c.Close()
	}
	return nil
}

// frames is a writer that sends data to the daemon in frames. A frame is the size of some data, followed by the data.
type frames struct {
	out  *bufio.Writer
	sent func(bytes int)
	err  error
}

func (f *frames) Write(b []byte) (n int, err error) {
	Put(f.out, uint64(len(b)))
	n, f.err = f.out.Write(b)
	f.sent(n)
	return n, f.err
}

// putTree writes a file tree in the format of a NAR (Nix archive).
func putTree(w *bufio.Writer, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	Put(w, "(", "type")
	switch mode := info.Mode(); mode.Type() {
	case 0:
		Put(w, "regular")
		if mode&0o100 != 0 {
			Put(w, "executable", "")
		}
		Put(w, "contents")
		err = putFile(w, path, info.Size())
	case fs.ModeSymlink:
		var target string
		target, err = os.Readlink(path)
		Put(w, "symlink", "target", target)
	case fs.ModeDir:
		Put(w, "directory")
		var entries []os.DirEntry
		entries, err = os.ReadDir(path) // in byte order, as in a NAR
		for _, e := range entries {
			Put(w, "entry", "(", "name", e.Name(), "node")
			if err := putTree(w, filepath.Join(path, e.Name())); err != nil {
				return err
			}
			Put(w, ")")
		}
	default:
		err = fmt.Errorf("%s is not a file, folder or symlink", path)
	}
	Put(w, ")")
	return err
}

func putFile(w *bufio.Writer, path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	Put(w, uint64(size))
	_, err = io.CopyN(w, f, size)
	_, _ = w.Write(make([]byte, -size&7))
	return err
}
