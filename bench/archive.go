package bench

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// archived are the files and folders of a sweep that the archive of the sweep contains. Keys, tokens and the state of the cluster
// are not in an archive.
var archived = []string{"sweep.json", "source", "facts", "workloads", "trials"}

// Closure returns the store paths of all systems of the sweep.
func (s Sweep) Closure() (out []string) {
	for _, c := range s.Configurations {
		out = append(out, c.Closure...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// excluded are the names of folders in a hive's folder that are not copied: the state of clusters, with their secrets, and the
// git repository.
var excluded = map[string]bool{".nixbench": true, ".git": true}

// WriteArchive writes the sweep as a compressed tar file, from which the sweep can be repeated. Equal sweeps have equal archives. Symbolic
// links out of the sweep's folder, such as the link `result` of nix build, are left out.
func (st *Store) WriteArchive(w io.Writer) error {
	root, err := os.OpenRoot(st.Folder)
	if err != nil {
		return err
	}
	defer root.Close()
	z := gzip.NewWriter(w)
	a := &archive{Writer: tar.NewWriter(z), root: root, folder: st.Sweep.ID + "/"}
	for _, entry := range archived {
		if err := fs.WalkDir(root.FS(), entry, a.add); err != nil {
			return err
		}
	}
	return errors.Join(a.Close(), z.Close())
}

// archive is an archive of a sweep that is written.
type archive struct {
	*tar.Writer
	root   *os.Root // the folder of the sweep
	folder string   // of all files in the archive
}

// add adds the file, folder or link with this name to the archive. It skips special files, and links that lead out of the sweep's folder.
func (a *archive) add(name string, d fs.DirEntry, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist) && slices.Contains([]string{"trials", "facts"}, name):
		return nil // the sweep has not begun, or has no facts
	case err != nil:
		return err
	case d.IsDir() && excluded[d.Name()]:
		return fs.SkipDir
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = a.root.Readlink(name); err != nil || leadsOut(a.root, name) {
			return err
		}
	}
	if !info.IsDir() && !info.Mode().IsRegular() && link == "" {
		return nil
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name, header.ModTime, header.Uid, header.Gid, header.Uname, header.Gname = a.folder+name, time.Unix(0, 0), 0, 0, "", ""
	if err := a.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := a.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(a, f)
	return err
}

// leadsOut reports whether a symbolic link leads out of the folder root, directly or through other links. [os.Root] does not follow such
// links.
func leadsOut(root *os.Root, name string) bool {
	_, err := root.Stat(name)
	return err != nil && !errors.Is(err, fs.ErrNotExist)
}

// maxArchive is the largest size of the files of an archive, in bytes.
const maxArchive = 16 << 30

// ReadArchive extracts sweep.json, the source and the workloads of an archive into a new folder. An archive is untrusted: links that lead
// out of the folder are an error.
func ReadArchive(r io.Reader, folder string) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("it is no archive of a sweep: %w", err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	left, links := int64(maxArchive), []string{}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("it is no archive of a sweep: %w", err)
		}
		_, name, _ := strings.Cut(filepath.ToSlash(filepath.Clean(h.Name)), "/")
		if first, _, _ := strings.Cut(name, "/"); !slices.Contains(archived, first) || isExcluded(name) || first == "trials" {
			continue
		}
		if left -= h.Size; left < 0 {
			return fmt.Errorf("the archive contains more than %d GiB", maxArchive>>30)
		}
		if h.Typeflag == tar.TypeSymlink {
			links = append(links, name)
		}
		if err := extract(root, name, h, t); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	for _, name := range links { // create the links at the end, when all files exist, since a link may lead to another one
		if leadsOut(root, name) {
			return fmt.Errorf("the archive contains a link out of its folder: %s", name)
		}
	}
	return nil
}

// extract writes an entry of an archive below the folder root. [os.Root] refuses paths that lead out of the folder through links.
func extract(root *os.Root, name string, h *tar.Header, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		mode := fs.FileMode(0o644)
		if h.Mode&0o100 != 0 {
			mode = 0o755
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	}
	return errors.New("it is neither a file, a folder nor a symbolic link")
}
