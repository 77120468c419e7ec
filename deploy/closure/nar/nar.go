// Package nar makes the NAR of a store path: the serialization of a file tree that Nix hashes and copies. A NAR has
// the names in byte order, the contents of files, whether they are executable, and the targets of symlinks. It has no
// times and no owners, so equal trees have equal NARs.
//
// An [Archive] lists where each part of the NAR is, without the contents of files. So a part of the NAR
// can be read without reading what is before it.
package nar

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Archive is the NAR of a file tree, which must not change.
type Archive struct {
	Size  int64
	parts []part
}

// part is a part of a NAR: a text, or the contents of a file.
type part struct {
	offset int64 // in the NAR
	size   int64
	text   []byte
	file   string // "" if the part is a text
}

// New reads the names and sizes of a file tree.
func New(root string) (*Archive, error) {
	b := &builder{}
	b.putStrings("nix-archive-1")
	if err := b.putTree(root); err != nil {
		return nil, err
	}
	b.endText()
	return &b.Archive, nil
}

// builder collects the parts of a NAR.
type builder struct {
	Archive
	text []byte // the text since the last part
}

func (b *builder) putStrings(list ...string) {
	for _, s := range list {
		b.text = binary.LittleEndian.AppendUint64(b.text, uint64(len(s)))
		b.text = append(b.text, s...)
		b.putPadding(int64(len(s)))
	}
}

// putPadding adds zeros behind n bytes, up to a multiple of eight bytes.
func (b *builder) putPadding(n int64) {
	b.text = append(b.text, make([]byte, -n&7)...)
}

func (b *builder) endText() {
	b.putPart(part{size: int64(len(b.text)), text: slices.Clone(b.text)})
	b.text = b.text[:0]
}

func (b *builder) putPart(p part) {
	if p.size > 0 {
		p.offset = b.Size
		b.parts = append(b.parts, p)
		b.Size += p.size
	}
}

func (b *builder) putTree(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	b.putStrings("(", "type")
	switch mode := info.Mode(); mode.Type() {
	case 0:
		b.putStrings("regular")
		if mode&0o100 != 0 {
			b.putStrings("executable", "")
		}
		b.putStrings("contents")
		b.text = binary.LittleEndian.AppendUint64(b.text, uint64(info.Size()))
		b.endText()
		b.putPart(part{size: info.Size(), file: path})
		b.putPadding(info.Size())
	case fs.ModeSymlink:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		b.putStrings("symlink", "target", target)
	case fs.ModeDir:
		b.putStrings("directory")
		if err := b.putEntries(path); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s is not a file, folder or symlink", path)
	}
	b.putStrings(")")
	return nil
}

func (b *builder) putEntries(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	names := map[string]string{} // in the NAR → in the folder
	var order []string
	for _, e := range entries {
		name := e.Name()
		if runtime.GOOS == "darwin" {
			// Nix adds a suffix to names that differ from others only in upper and lower case.
			name, _, _ = strings.Cut(name, "~nix~case~hack~")
		}
		names[name] = e.Name()
		order = append(order, name)
	}
	slices.Sort(order)
	for _, name := range order {
		b.putStrings("entry", "(", "name", name, "node")
		if err := b.putTree(filepath.Join(dir, names[name])); err != nil {
			return err
		}
		b.putStrings(")")
	}
	return nil
}

// ReadAt implements [io.ReaderAt]. A file that is shorter than it was for New is an error.
func (a *Archive) ReadAt(buf []byte, offset int64) (int, error) {
	i, found := slices.BinarySearchFunc(a.parts, offset, func(p part, offset int64) int {
		switch {
		case p.offset+p.size <= offset:
			return -1
		case p.offset > offset:
			return 1
		}
		return 0
	})
	n := 0
	for ; found && i < len(a.parts) && n < len(buf); i++ {
		p := a.parts[i]
		skip := offset + int64(n) - p.offset
		want := buf[n:min(int64(len(buf)), int64(n)+p.size-skip)]
		if err := p.read(want, skip); err != nil {
			return n, err
		}
		n += len(want)
	}
	if n < len(buf) {
		return n, io.EOF
	}
	return n, nil
}

func (p part) read(buf []byte, offset int64) error {
	if p.file == "" {
		copy(buf, p.text[offset:])
		return nil
	}
	f, err := os.Open(p.file)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.ReadAt(buf, offset); err != nil {
		return fmt.Errorf("read %s: %w", p.file, err)
	}
	return nil
}
